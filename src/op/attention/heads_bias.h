/* heads_bias.h - biases of queries, keys and values as a step, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_HEADS_BIAS_H
#define MP_OP_HEADS_BIAS_H

#include "op/core/plan.h"

/* `rows` rows of `width` elements at `x`, and what is added to each row. */
typedef struct mp_heads_bias {
    mp_ref x, bias;
    int64_t rows, width;
} mp_heads_bias;

/* Adds the biases of up to three tensors, whose `x` then say where the sums are: in scratch memory.
 */
mp_status mp_plan_heads_bias(mp_planner *p, mp_dtype type, mp_heads_bias *sides, int count);

#endif
