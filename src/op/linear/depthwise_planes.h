/* depthwise_planes.h - convolutions of each channel by itself, with channels first: a kernel of
 * ours, since libraries are slow at them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEPTHWISE_PLANES_H
#define MP_OP_DEPTHWISE_PLANES_H

#include "op/core/op.h"

/* Whether the kernel computes it: with channels first, by up to 256 taps. */
bool mp_depthwise_planes_takes(const mp_conv *conv);

/* The convolution, with its epilogue, whose activation is not MP_ACTIVATION_OTHER. */
mp_status mp_depthwise_planes_steps(mp_planner *p, const mp_conv *conv,
                                    const mp_ref operands[MP_CONV_OPERANDS]);

#endif
