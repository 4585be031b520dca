/* depthwise_line.h - convolutions of lines, each channel by itself, with channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEPTHWISE_LINE_H
#define MP_OP_DEPTHWISE_LINE_H

#include "op/core/op.h"

/* Whether the kernel takes a convolution of a picture of one row, of stride 1, each channel by
 * itself with channels last, and has no less to do than others where lines or their pixels that
 * share taps are short. */
bool mp_depthwise_line_takes(const mp_conv *conv);

/* The convolution, with its epilogue; of the operands the weights are turned: [taps, channels]. */
mp_status mp_depthwise_line_steps(mp_planner *p, const mp_conv *conv,
                                  const mp_ref operands[MP_CONV_OPERANDS]);

#endif
