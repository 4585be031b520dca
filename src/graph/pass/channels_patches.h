/* channels_patches.h - convolutions over patches of an image that do not overlap, as a product.
 *
 * The image is seen as patches, each of which becomes a row; the product of the rows and the
 * weights is the result with its channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_PATCHES_H
#define MP_GRAPH_PASS_CHANNELS_PATCHES_H

#include "graph/pass/channels_twin.h"

/* Whether a Conv over few channels does no more than that, in patches that are worth a product, of
 * an image whose size is known and a multiple of theirs. */
bool mp_is_of_patches(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is so, becomes a product that makes a twin. */
mp_status mp_turn_patches(mp_layout *l, int32_t n);

#endif
