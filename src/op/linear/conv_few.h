/* conv_few.h - convolutions of few outputs a channel, such as those of a chunk of speech: a kernel
 * of ours, which reads the weights once, since libraries are made for images.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_FEW_H
#define MP_OP_CONV_FEW_H

#include "op/core/op.h"

/* Whether the kernel computes it, and sooner than a library on the planner's device: with channels
 * first, any groups, over one dimension or two. */
bool mp_conv_few_takes(const mp_planner *p, const mp_conv *conv);

/* The convolution, with its epilogue, whose activation is not MP_ACTIVATION_OTHER. */
mp_status mp_conv_few_steps(mp_planner *p, const mp_conv *conv,
                            const mp_ref operands[MP_CONV_OPERANDS]);

#endif
