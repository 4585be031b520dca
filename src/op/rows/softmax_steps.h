/* softmax_steps.h - softmax of rows as a step, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SOFTMAX_STEPS_H
#define MP_OP_SOFTMAX_STEPS_H

#include "op/core/plan.h"
#include "op/core/row_shape.h"

/* A bias that is added before: each of its `rows` is that of `share` rows of x, one after the other
 * and then again from the first. */
typedef struct mp_bias_rows {
    int64_t share, rows; /* rows: 0 for no bias */
} mp_bias_rows;

typedef struct mp_softmax_step {
    const char *word; /* "plain", "log" or "biased" */
    mp_dtype type;
    mp_rows rows;
    mp_bias_rows by;
    int32_t align; /* of x, bias and out: bytes */
    mp_ref x, bias, out;
} mp_softmax_step;

/* out = softmax of each row of x, in x's place if wanted. There is at least one element. */
mp_status mp_plan_softmax(mp_planner *p, const mp_softmax_step *s);

#endif
