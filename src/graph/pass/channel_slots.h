/* channel_slots.h - what nodes over images whose channels come last do with these: which inputs
 * have the channels of the result, each of which is made of the same channel alone, and which go
 * into all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNEL_SLOTS_H
#define MP_GRAPH_PASS_CHANNEL_SLOTS_H

#include "graph/graph.h"

enum { MP_CHANNEL_SLOTS_MAX = 64 };

/* What an input is. Constants are here with their bytes. */
typedef enum mp_channel_slot {
    MP_SLOT_PLAIN,   /* the same for all channels */
    MP_SLOT_SAME,    /* an image with the channels of the result, stored as these */
    MP_SLOT_MIXED,   /* an image of which all channels go into each of the result */
    MP_SLOT_FIRST,   /* a constant with the channels of the result as its first dimension */
    MP_SLOT_LAST,    /* as its last one */
    MP_SLOT_WEIGHTS, /* a constant [channels of the result, those of the mixed image, ...] */
    MP_SLOT_TURNED,  /* [those of the mixed image, channels of the result, ...] */
    MP_SLOT_SIZES,   /* a list whose last number is that of the channels */
    MP_SLOT_PART,    /* an image whose channels are some of the result's: of a Concat */
    MP_SLOT_KEPT,    /* an image with the first channels of the result: of a Pad behind it */
    MP_SLOT_SHAPE,   /* an image of which the result is the list of dimensions */
} mp_channel_slot;

/* Notes the type and the channels of what node `v` makes, where they are not known yet. */
void mp_channels_name(mp_graph *graph, const mp_vertex *v);

/* What the inputs of node `v` are; false where it is none that is known, or more conditions hold
 * than passes know of. Its result is its only output. */
bool mp_channel_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots);

/* Whether it is a convolution of each channel by itself, whose attribute says how many. */
bool mp_is_channel_alone(const mp_graph *graph, const mp_vertex *v);

/* Whether it is a convolution of more than one pixel that a library computes, or a product: one
 * that is sooner done with whole packs. */
bool mp_gains_by_packs(const mp_graph *graph, const mp_vertex *v);

#endif
