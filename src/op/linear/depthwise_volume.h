/* depthwise_volume.h - convolutions over three dimensions of each channel by itself, with channels
 * first: a kernel of ours, since libraries are slow at them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEPTHWISE_VOLUME_H
#define MP_OP_DEPTHWISE_VOLUME_H

#include "op/core/op.h"

/* Whether the kernel computes it: by up to 512 taps, with fewer than 2^31 outputs. */
bool mp_depthwise_volume_takes(const mp_conv *conv);

/* The convolution, with its epilogue, whose activation is not MP_ACTIVATION_OTHER. */
mp_status mp_depthwise_volume_steps(mp_planner *p, const mp_conv *conv,
                                    const mp_ref operands[MP_CONV_OPERANDS]);

#endif
