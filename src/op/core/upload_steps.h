/* upload_steps.h - numbers that are known while planning, put on the device.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_UPLOAD_STEPS_H
#define MP_OP_UPLOAD_STEPS_H

#include "op/core/plan.h"

/* `count` words among the device's tables or, where it keeps no more, in scratch memory: then they
 * travel in each run as kernel arguments, some 4 KB a launch. For tables, not for weights. */
mp_status mp_plan_upload(mp_planner *p, const uint64_t *words, int64_t count, mp_ref *out);

#endif
