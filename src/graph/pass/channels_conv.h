/* channels_conv.h - convolutions over images with their channels last.
 *
 * A convolution over patches that do not overlap is a product of these; another over few channels
 * that a kernel of ours makes reads the image as it is. Of others, images with few channels that
 * one convolution reads get zeros behind these, up to what tensor cores load at once, and so do its
 * weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_CONV_H
#define MP_GRAPH_PASS_CHANNELS_CONV_H

#include "graph/pass/channels_twin.h"

/* The operator with channels last; NULL for what is no convolution. */
const mp_op *mp_last_conv_op(const mp_vertex *v);
/* Whether the convolution gains by its channels coming last, if the image has them there already:
 * its weights are constants of a type that tensor cores compute. */
bool mp_may_last(const mp_layout *l, const mp_vertex *v);
/* Whether it is one of these, and to be made so. One for which an image
 * is not worth turning wants those only that are turned already. */
bool mp_wants_last(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is wanted so, makes a twin. */
mp_status mp_turn_conv(mp_layout *l, int32_t n);

/* Whether the node is a transposed convolution for which a picture is worth turning that is not
 * turned yet. */
bool mp_begins_last(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is so, makes a twin. */
mp_status mp_turn_transposed(mp_layout *l, int32_t n);

#endif
