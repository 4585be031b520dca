/* channels_axes.h - nodes that say along which dimensions they work, over images with their
 * channels last: Concat, Split, ShuffleParts, Slice, Pad and reductions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_AXES_H
#define MP_GRAPH_PASS_CHANNELS_AXES_H

#include "graph/pass/channels_twin.h"

/* Whether the node is one of these, of twins, along axes that are known. */
bool mp_has_axes(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is so, works on twins. */
mp_status mp_turn_axes(mp_layout *l, int32_t n);

#endif
