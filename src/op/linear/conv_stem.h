/* conv_stem.h - convolutions of images with few channels, as networks begin with: a kernel of ours,
 * since a library's tensor cores want eight channels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_STEM_H
#define MP_OP_CONV_STEM_H

#include "op/core/op.h"
#include "op/linear/conv_stem_cut.h"

/* Whether the kernel computes it, and is expected to be sooner done on this device than a library
 * is.
 */
bool mp_conv_stem_takes(const mp_planner *p, const mp_conv *conv, mp_stem_form form);

/* The same for images of any size of a node with such weights, as far as is known of it before. */
bool mp_conv_stem_suits(const mp_node *node, const mp_tensor *w);

/* The convolution, with its activation, which is not MP_ACTIVATION_OTHER. */
mp_status mp_conv_stem_steps(mp_planner *p, const mp_conv *conv, mp_stem_form form,
                             const mp_ref operands[MP_CONV_OPERANDS]);

#endif
