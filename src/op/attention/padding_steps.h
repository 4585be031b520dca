/* padding_steps.h - rows lose their padding and get it back, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PADDING_STEPS_H
#define MP_OP_PADDING_STEPS_H

#include "kernel/attention/attention_args.h"
#include "op/core/op.h"

/* Tensors with rows of `width` elements, which are moved alike. A batch with padding is [batch,
 * length, width]; packed rows are one behind the other, entry by entry. */
typedef struct mp_padding {
    mp_dtype type;
    k_rows_kind kind;
    int64_t batch, length, width;
    int64_t given, rows; /* of x, of the result */
    bool before;         /* padding comes before the rows of an entry, not behind them */
    int count;           /* of tensors, K_PADDING_TENSORS at most */
    mp_ref x[K_PADDING_TENSORS], out[K_PADDING_TENSORS];
    mp_ref starts; /* int32 [batch + 1], where entries begin among packed rows, and the end */
    mp_ref places; /* of K_ROWS_LISTED: int32 [rows] */
} mp_padding;

/* Rows that the numbers leave out, or take from outside, are 0. */
mp_status mp_plan_padding(mp_planner *p, const mp_padding *pad);

#endif
