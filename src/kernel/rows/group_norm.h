/* group_norm.h - how the channels and pixels of a slice are dealt to the lanes of a block. A lane
 * has a pack of channels at every few pixels:
 *
 *     pixel 0   lane 0    lane 1    lane 2      three packs of channels side by side,
 *     pixel 1   lane 3    lane 4    lane 5      two pixels at a time; lanes that are left over do
 *     pixel 2   lane 0    lane 1    lane 2      nothing
 *
 * Where there are more packs than lanes a block takes a chunk of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_NORM_H
#define MP_KERNEL_GROUP_NORM_H

#include "kernel/core/block.h"
#include "kernel/rows/row_args.h"

#define G_edged  0
#define G_packed 1
enum { PACK = K_JOIN(G_, K_ROWS) ? 16 / sizeof(T) : 1, AHEAD = 4 };
typedef struct K_ALIGN(sizeof(T) * PACK) g_pack {
    T at[PACK];
} g_pack;

/* What a lane has of one item: a chunk of a slice of an element of the batch. */
typedef struct g_part {
    int64_t batch, slice;
    int64_t channel;     /* the first of its pack */
    int64_t first, end;  /* pixels of the slice */
    int64_t line, lines; /* its first one, counted from there; how many the block takes at a time */
    int64_t across;      /* packs of the block */
    int active;
} g_part;

K_FN int64_t g_across(const mp_group_norm_args *args) {
    const int64_t packs = args->channels / PACK;
    return packs < (int64_t)blockDim.x ? packs : (int64_t)blockDim.x;
}

K_FN int64_t g_chunks(const mp_group_norm_args *args) {
    const int64_t across = g_across(args);
    return (args->channels / PACK + across - 1) / across;
}

K_FN int64_t g_items(const mp_group_norm_args *args) {
    return args->batch * args->slices * g_chunks(args);
}

K_FN g_part g_part_of(const mp_group_norm_args *args, int64_t item) {
    const int64_t chunks = g_chunks(args), rest = item / chunks, chunk = item - rest * chunks;
    const int64_t lane = threadIdx.x;
    g_part part;
    part.across = g_across(args);
    part.lines = (int64_t)blockDim.x / part.across;
    part.line = lane / part.across;
    part.batch = rest / args->slices;
    part.slice = rest - part.batch * args->slices;
    part.channel = (chunk * part.across + lane - part.line * part.across) * PACK;
    part.first = part.slice * args->slice;
    const int64_t end = part.first + args->slice;
    part.end = end < args->pixels ? end : args->pixels;
    part.active = part.line < part.lines && part.channel < args->channels;
    return part;
}

/* The place of a lane's pack of pixel `pixel`, in elements. */
K_FN int64_t g_at(const mp_group_norm_args *args, const g_part *part, int64_t pixel) {
    return (part->batch * args->pixels + pixel) * args->channels + part->channel;
}

#endif
