/* conv_steps.h - what convolutions share, transposed ones too: by library math or a kernel of ours,
 * with channels first or last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_STEPS_H
#define MP_OP_CONV_STEPS_H

#include "op/core/op.h"
#include "op/signal/signal_window.h"

/* What a row of the table has as its detail where its inputs are not those of ONNX's Conv. */
typedef struct mp_conv_form {
    int bias;          /* which input B is */
    int pads;          /* the input on the host that has the padding; 0 for none */
    bool weights_last; /* of W too the channels are stored last */
} mp_conv_form;

/* Checks X, W and B against each other and fills in what is known before the output's size is. */
mp_status mp_conv_describe(const mp_planner *p, bool transposed, mp_conv *conv, mp_window *window);

/* With conv->out known: the output, and the steps unless there is nothing to compute. */
mp_status mp_conv_finish(mp_planner *p, mp_conv *conv, const mp_window *window);

/* The same of an image with channels first that makes one with channels last. */
mp_status mp_conv_finish_turned(mp_planner *p, mp_conv *conv, const mp_window *window);

/* mp_op.prepare of all of them. */
mp_status mp_conv_prepare_weights(mp_planner *p, int i);

#endif
