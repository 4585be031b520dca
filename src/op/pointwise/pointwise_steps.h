/* pointwise_steps.h - element-wise steps for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_POINTWISE_STEPS_H
#define MP_OP_POINTWISE_STEPS_H

#include "op/core/plan.h"

/* A tensor that a step reads: where it is and how it is shaped. */
typedef struct mp_operand {
    mp_ref ref;
    const mp_shape *shape;
} mp_operand;

/* out = f(x) over `count` elements; `word` and `a`, `b` as in kernel/pointwise/pointwise.def. */
mp_status mp_pointwise1(mp_planner *p, const char *word, mp_dtype dtype, mp_ref x, mp_ref out,
                        int64_t count, float a, float b);

/* out = f(x, y), both broadcast to `shape`, which is that of `out`. */
mp_status mp_pointwise2(mp_planner *p, const char *word, mp_dtype dtype, mp_operand x, mp_operand y,
                        mp_ref out, const mp_shape *shape, float a, float b);

/* The same for a result of another type. */
typedef struct mp_pair {
    const char *word;
    mp_dtype dtype, result;
    mp_operand x, y;
    mp_ref out;
    const mp_shape *shape; /* of `out` */
    float a, b;
} mp_pair;

mp_status mp_plan_pair(mp_planner *p, const mp_pair *pair);

#endif
