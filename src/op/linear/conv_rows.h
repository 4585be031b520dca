/* conv_rows.h - transposed convolutions with channels last of lines, whose windows lie side by
 * side, and of single pixels: one product, whose rows are the result's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_ROWS_H
#define MP_OP_CONV_ROWS_H

#include "op/core/op.h"

/* Whether the convolution is one of these; a line is a picture of height 1. */
bool mp_conv_rows_takes(const mp_conv *conv);

/* The convolution with its bias; the weights are [channels in, taps, channels out]. */
mp_status mp_conv_rows_steps(mp_planner *p, const mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]);

#endif
