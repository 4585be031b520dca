/* channels_heads.h - lines [batch, channels, length] whose channels are seen as heads, [batch,
 * heads, size, length], and back: with channels last these are [batch, length, heads, size].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_HEADS_H
#define MP_GRAPH_PASS_CHANNELS_HEADS_H

#include "graph/pass/channels_twin.h"

/* Whether the node is a Reshape that makes heads of a line that has a twin. */
bool mp_makes_heads(const mp_layout *l, const mp_vertex *v);
/* Node `n`, which is so, makes them of the twin. What it made is those, transposed. */
mp_status mp_turn_heads(mp_layout *l, int32_t n);

/* Whether `line` is made of heads by a Reshape. */
bool mp_line_of_heads(const mp_graph *graph, int32_t line);
/* Makes `twin`, a value of its shape, of these heads, transposed. */
mp_status mp_twin_of_heads(mp_layout *l, int32_t line, int32_t twin);

#endif
