/* longformer_steps.h - attention within a window, with some tokens that see all and are seen by
 * all, as steps of the plans of LongformerAttention and of its quantised form.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_LONGFORMER_STEPS_H
#define MP_OP_LONGFORMER_STEPS_H

#include "op/attention/dense_steps.h"

/* Which inputs of a row have what; mask and flags are [batch, rows]. */
typedef struct mp_longformer_inputs {
    int weights, bias, mask, global_weights, global_bias, flags;
} mp_longformer_inputs;

typedef struct mp_longformer {
    mp_dense d;     /* but for q, k and v, and its type */
    int64_t tokens; /* of all entries */
    int64_t width;  /* of all heads */
    int64_t window; /* keys that a token sees on either side */
    bool apart;     /* weights and biases as [3, width, width] and so on */
} mp_longformer;

/* Input 0 is [batch, rows, width]. `apart_too`: weights may be three matrices one behind the other,
 * and then the biases of all but global queries are those of the others. Fails: INVALID_ARGUMENT
 * where an input does not fit, UNSUPPORTED for sizes of 2^31 and more. */
mp_status mp_longformer_read(const mp_planner *p, const mp_longformer_inputs *in, bool apart_too,
                             mp_longformer *out);

/* Attention of tokens by Q, K and V of `own[0]`, and of those that are flagged by those of
 * `own[1]`, of the same strides, into `y`, [batch, rows, width]. */
mp_status mp_longformer_attend(mp_planner *p, const mp_longformer *x,
                               const mp_longformer_inputs *in, const mp_dense own[2], mp_ref y);

#endif
