/* channels_norm.h - normalisation of groups of channels, or of each, over images with their
 * channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_NORM_H
#define MP_GRAPH_PASS_CHANNELS_NORM_H

#include "graph/pass/channels_twin.h"

/* Whether the node is such a normalisation of a twin, which an operator with channels last does. */
bool mp_is_channels_norm(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is so, works on twins. */
mp_status mp_turn_norm(mp_layout *l, int32_t n);

#endif
