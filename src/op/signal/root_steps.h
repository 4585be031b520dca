/* root_steps.h - tables of roots of unity.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROOT_STEPS_H
#define MP_OP_ROOT_STEPS_H

#include "kernel/signal/signal_args.h"
#include "op/core/plan.h"

/* The table that `args` says, of numbers of `type`, MP_F32 or MP_F64: made once, or in each run
 * where the device keeps no more of them. */
mp_status mp_plan_roots(mp_planner *p, mp_dtype type, const mp_roots_args *args, mp_ref *out);

#endif
