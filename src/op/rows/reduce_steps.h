/* reduce_steps.h - reductions as steps, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_REDUCE_STEPS_H
#define MP_OP_REDUCE_STEPS_H

#include "op/core/plan.h"

/* out = `word` over those dimensions of x that `axes` has bits for; `word` as in
 * kernel/rows/reduce.h
 * ("sum", "mean", "max", ...). Elements of out are in the order of the dimensions kept. */
mp_status mp_plan_reduce(mp_planner *p, const char *word, mp_dtype dtype, mp_ref x,
                         const mp_shape *shape, uint32_t axes, mp_ref out);

#endif
