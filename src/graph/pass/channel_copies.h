/* channel_copies.h - images whose channels come last that are stored with more channels than they
 * have, so that a pixel fills packs of 16 bytes: each channel more is a copy of another.
 *
 *     channels   0 1 2 .. 17 | 0 1 2 3 4 5      18 are stored as 24
 *
 * Copies, not zeros: whatever is computed for each channel alone is the same for a copy, also where
 * it makes something infinite of 0, and what is infinite or no number stays where it is without
 * them. A convolution reads each of them with a part of the channel's weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNEL_COPIES_H
#define MP_GRAPH_PASS_CHANNEL_COPIES_H

#include "graph/graph.h"

/* Stored channel `i` of `stored` is channel `i`, or behind those that there are, copies of `period`
 * channels from `first` on, over and over. */
typedef struct mp_channel_map {
    int64_t count, stored;
    int64_t first, period;
} mp_channel_map;

/* Which channel is stored there. */
int64_t mp_channel_at(const mp_channel_map *map, int64_t i);

/* How many channels an image is stored with; 0 for a value that is none, or is stored as it is. */
int64_t mp_channels_stored(const mp_graph *graph, int32_t value);

/* A constant with an element, a row or the like for each channel, along this dimension, with
 * copies. */
mp_status mp_channels_copy(mp_graph *graph, int32_t constant, int axis, const mp_channel_map *map,
                           int32_t *out);

/* Weights by which channels are multiplied, along this dimension, for an image with copies: those
 * of a channel and of its copies are together what the channel's were, to the last bit. */
mp_status mp_channels_share(mp_graph *graph, int32_t weights, int axis, const mp_channel_map *map,
                            int32_t *out);

/* The image with copies, by a Gather, or `stored` without them, by a Slice, which is then made. */
mp_status mp_channels_add(mp_graph *graph, int32_t image, const mp_channel_map *map,
                          int32_t stored);
mp_status mp_channels_cut(mp_graph *graph, int32_t stored, const mp_channel_map *map,
                          int32_t image);

#endif
