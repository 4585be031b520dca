/* depthwise.h - convolutions of each channel by itself, with channels last: a kernel of ours, since
 * libraries are slow at them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DEPTHWISE_H
#define MP_OP_DEPTHWISE_H

#include "op/core/op.h"

/* Whether the kernel computes convolutions of that kind, by what is known of the weights alone.
 * `w`: [channels, channels / groups, kernel...]. */
bool mp_depthwise_takes(mp_dtype type, const mp_shape *w, int64_t groups);

/* Weights [channels, 1, kernel...] as the kernel reads them: [kernel..., channels]. */
mp_status mp_depthwise_turn(mp_planner *p, mp_dtype type, const mp_shape *w, mp_ref from,
                            mp_ref to);

/* The convolution of a picture, with its epilogue; of the operands the weights are turned. */
mp_status mp_depthwise_steps(mp_planner *p, const mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]);

#endif
