/* group_pixels.h - convolutions of single pixels in groups, as encoders of texts have them in the
 * place of products: products of matrices, many at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_GROUP_PIXELS_H
#define MP_OP_GROUP_PIXELS_H

#include "op/core/op.h"

/* Whether every output is made of one pixel: windows of one, without steps or padding. */
bool mp_conv_is_of_pixels(const mp_conv *conv);

/* Elements of a plane of x. */
int64_t mp_conv_pixels(const mp_conv *conv);

/* Whether it is one of several groups, each wide enough to be a product, in few calls. */
bool mp_group_pixels_takes(const mp_conv *conv);

/* The convolution with bias, residual and activation; `stored` is the shape of y. */
mp_status mp_group_pixels_steps(mp_planner *p, const mp_conv *conv, const mp_shape *stored,
                                const mp_ref operands[MP_CONV_OPERANDS]);

#endif
