/* recurrent_read.h - what a node of LSTM, GRU, RNN or DynamicQuantizeLSTM asks for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_RECURRENT_READ_H
#define MP_OP_RECURRENT_READ_H

#include "op/recurrent/recurrent_steps.h"

/* Reads the attributes and all inputs but W and R, and declares the outputs. */
mp_status mp_recurrent_read(mp_planner *p, k_cell_kind kind, mp_recurrent *out);

/* Fails: INVALID_ARGUMENT where there is an input `i` and its shape is not `dims`. */
mp_status mp_recurrent_input_check(const mp_planner *p, int i, const char *name, int rank,
                                   const int64_t *dims);

#endif
