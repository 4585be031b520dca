/* conv_apart.h - transposed convolutions whose windows lie side by side, as decoders of images have
 * them: a product of matrices, and a kernel of ours that puts its rows between each other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_APART_H
#define MP_OP_CONV_APART_H

#include "op/core/op.h"

/* Whether it is one: with channels first, one group, over one dimension or two, without padding and
 * with strides as long as the kernel, 2 to 4 along the last dimension. */
bool mp_conv_apart_takes(const mp_conv *conv);

/* The convolution with its bias. */
mp_status mp_conv_apart_steps(mp_planner *p, const mp_conv *conv,
                              const mp_ref operands[MP_CONV_OPERANDS]);

#endif
