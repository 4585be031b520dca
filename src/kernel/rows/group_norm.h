/* group_norm.h - how the channels and pixels of a slice are dealt to the lanes of a block. A lane
 * has a pack of channels at every few pixels:
 *
 *     pixel 0   lane 0    lane 1    lane 2      three packs of channels side by side,
 *     pixel 1   lane 3    lane 4    lane 5      two pixels at a time; lanes that are left over do
 *     pixel 2   lane 0    lane 1    lane 2      nothing
 *
 * Where there are more packs than lanes a block takes a chunk of them. Chunks end anywhere in a
 * group, which then has a part in each of several.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_NORM_H
#define MP_KERNEL_GROUP_NORM_H

#include "kernel/core/index.h"
#include "kernel/core/lanes_sum.h"
#include "kernel/rows/row_args.h"

#define G_edged  0
#define G_packed 1
enum {
    PACK = K_JOIN(G_, K_ROWS) ? 16 / sizeof(T) : 1,
    AHEAD = PACK > 4 ? 2 : 4, /* packs of a lane that are on their way at a time */
    TEAM = K_HOST ? 1 : 16,   /* lanes that work on a group */
    G_BLOCKS = 4,             /* that a multiprocessor has room for */
};

/* Its words are what is loaded and kept: elements of 16 bits would be taken apart at once. */
#define G_WORD_edged  T
#define G_WORD_packed uint32_t
typedef K_JOIN(G_WORD_, K_ROWS) g_word;
typedef union K_ALIGN(sizeof(T) * PACK) g_pack {
    T at[PACK];
    struct {
        g_word at[sizeof(T) * PACK / sizeof(g_word)];
    } words;
} g_pack;

/* One item: a chunk of a slice of an element of the batch. */
typedef struct g_part {
    int64_t batch;
    int32_t slice, chunk;
    int32_t low, high;  /* channels of the chunk */
    int64_t first, end; /* pixels of the slice */
} g_part;

/* What a lane has of it: a pack of every `lines`-th pixel. */
typedef struct g_seat {
    int32_t lane, line; /* `line`: its first pixel, counted from the slice's */
    int32_t channel;    /* the first of its pack */
    int32_t left;       /* pixels from its first one to the slice's end; none where 0 or below */
} g_seat;

/* Visits the lanes that a plan has dealt to. On the emulated device a lane may be all of them. */
#if K_HOST
enum { G_LANES = K_GROUP_NORM_LANES };
#define G_LANE_LOOP(i) K_BLOCK_LOOP(i, G_LANES)
#else
#define G_LANES        blockDim.x
#define G_LANE_LOOP(i) for (uint32_t i = threadIdx.x, i##_once = 1; i##_once; i##_once = 0)
#endif

/* What a chunk has of a group: channels from `low` to `high`, and which part of the group it is. */
typedef struct g_share {
    int32_t low, high, span;
} g_share;

K_FN int64_t g_items(const mp_group_norm_args *args) {
    return args->batch * args->slices * args->chunks;
}

K_FN int64_t g_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

K_FN g_part g_part_of(const mp_group_norm_args *args, int64_t item) {
    const uint32_t rest = k_divide((uint32_t)item, args->by_chunks);
    const uint32_t batch = k_divide(rest, args->by_slices);
    const int32_t width = args->across * PACK;
    g_part part;
    part.chunk = (int32_t)((uint32_t)item - rest * (uint32_t)args->chunks);
    part.batch = batch;
    part.slice = (int32_t)(rest - batch * (uint32_t)args->slices);
    part.low = part.chunk * width;
    part.high = (int32_t)g_least(part.low + width, args->channels);
    part.first = part.slice * args->slice;
    part.end = g_least(part.first + args->slice, args->pixels);
    return part;
}

K_FN g_seat g_seat_of(const mp_group_norm_args *args, const g_part *part, int32_t lane) {
    g_seat seat;
    seat.lane = lane;
    seat.line = lane / args->across;
    seat.channel = part->low + (lane - seat.line * args->across) * PACK;
    const int active = seat.line < args->lines && seat.channel < part->high;
    seat.left = active ? (int32_t)(part->end - part->first) - seat.line : 0;
    return seat;
}

/* The place of channel `channel` of pixel `pixel`, in elements. */
K_FN int64_t g_at(const mp_group_norm_args *args, const g_part *part, int64_t pixel,
                  int32_t channel) {
    return (part->batch * args->pixels + pixel) * args->channels + channel;
}

/* ---- groups ---- */

K_FN int32_t g_group(const mp_group_norm_args *args, int32_t channel) {
    return (int32_t)k_divide((uint32_t)channel, args->by_each);
}

/* The chunk of a channel. */
K_FN int32_t g_chunk(const mp_group_norm_args *args, int32_t channel) {
    return (int32_t)k_divide((uint32_t)channel, args->by_width);
}

/* What chunk `chunk` has of group `group`, which has a part in it. */
K_FN g_share g_share_of(const mp_group_norm_args *args, int32_t group, int32_t chunk) {
    const int32_t width = args->across * PACK, first = group * args->each;
    g_share share;
    share.low = first > chunk * width ? first : chunk * width;
    share.high = (int32_t)g_least(first + args->each, (chunk + 1) * width);
    share.span = chunk - g_chunk(args, first);
    return share;
}

/* The partial results of a part of a group, a pair for each slice. */
K_FN float *g_partial(const mp_group_norm_args *args, int64_t batch, int32_t group, int32_t span) {
    const int64_t row = (batch * args->groups + group) * args->spans + span;
    return args->partial + row * args->slices * 2;
}

#endif
