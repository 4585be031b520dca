/* recurrent_steps.h - the steps of LSTM, GRU and RNN once their attributes and shapes are read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_RECURRENT_STEPS_H
#define MP_OP_RECURRENT_STEPS_H

#include "kernel/recurrent/recurrent_args.h"
#include "op/core/op.h"

/* The inputs, in an order that LSTM, GRU, RNN and DynamicQuantizeLSTM share as far as they go. */
enum { MP_RNN_X, MP_RNN_W, MP_RNN_R, MP_RNN_B, MP_RNN_LENGTHS, MP_RNN_H, MP_RNN_C, MP_RNN_P };
enum { MP_RNN_Y, MP_RNN_Y_H, MP_RNN_Y_C };

typedef struct mp_recurrent {
    mp_dtype type;
    int64_t input; /* elements of x at a step */
    k_cell cell;   /* pointers unset */
} mp_recurrent;

/* Bindings of the cell that is `offset` bytes into a struct of arguments; MP_CELL_BINDS of them.
 */
enum { MP_CELL_BINDS = 9 };
void mp_recurrent_bind(const mp_planner *p, mp_ref projected, size_t offset,
                       mp_bind out[MP_CELL_BINDS]);

/* Lanes of a warp that share a unit's products, `piece` elements of the state each. */
int32_t mp_recurrent_lanes(int64_t hidden, int64_t piece);

/* The steps for an X without any: the states at the end are zeros, whatever those at the beginning
 * are, as ONNX Runtime's CPU provider has it. */
mp_status mp_recurrent_no_steps(mp_planner *p, const mp_recurrent *r);

/* The steps from `projected` on, W x of all times, for R as input MP_RNN_R. */
mp_status mp_recurrent_plan(mp_planner *p, const mp_recurrent *r, mp_ref projected);

#endif
