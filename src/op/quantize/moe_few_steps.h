/* moe_few_steps.h - a mixture of experts of a few rows with packed integers: two kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_MOE_FEW_STEPS_H
#define MP_OP_MOE_FEW_STEPS_H

#include "op/quantize/moe_steps.h"

bool mp_moe_is_few(const mp_planner *p, const mp_moe *m);

/* Output 0 is declared and not empty. */
mp_status mp_plan_moe_few(mp_planner *p, const mp_moe *m);

#endif
