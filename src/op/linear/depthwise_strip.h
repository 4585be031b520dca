/* depthwise_strip.h - convolutions of long lines, each channel by itself, with channels first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEPTHWISE_STRIP_H
#define MP_OP_DEPTHWISE_STRIP_H

#include "op/core/op.h"

/* Whether the kernel computes it: of stride 1, by up to 256 taps side by side. */
bool mp_depthwise_strip_takes(const mp_conv *conv);

/* The convolution, with its epilogue, whose activation is not MP_ACTIVATION_OTHER. */
mp_status mp_depthwise_strip_steps(mp_planner *p, const mp_conv *conv,
                                   const mp_ref operands[MP_CONV_OPERANDS]);

#endif
