/* stream.h - packs of a tensor, each visited once, by lanes that have two of them on their way at a
 * time.
 *
 *     const k_stream s = k_stream_of(packs);
 *     K_STREAM_LOOP(i, s) {
 *         const int64_t last = k_stream_last(&s, i);
 *         pack in = x[i], ahead = x[last];
 *         K_ONE_COPY
 *         for (int64_t at = i; at <= last; at += s.next) {
 *             out[at] = f(in);
 *             in = ahead;
 *         }
 *     }
 *
 * Blocks come one after the other and each takes neighbours, so that all of them are at work on one
 * stretch of memory at any time; mp_plan_grid_stream makes as many as that takes. Where there are
 * so few packs that each lane can have one alone, it has, and `last` is that one. What is made of a
 * pack may be long, so its text is there once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STREAM_H
#define MP_KERNEL_STREAM_H

#include "kernel/core/index_args.h"
#include "kernel/core/prelude.h"

typedef struct k_stream {
    int64_t packs;
    int64_t first, step; /* the lane's first pack; from there to the one it takes two packs later */
    int64_t next;        /* between those two; all packs where a lane has one alone */
} k_stream;

K_FN k_stream k_stream_of(int64_t packs) {
    const int64_t lanes = (int64_t)gridDim.x * blockDim.x;
    const int64_t each = lanes < packs ? K_STREAM_AHEAD : 1;
    k_stream s;
    s.packs = packs;
    s.first = (int64_t)blockIdx.x * blockDim.x * each + threadIdx.x;
    s.step = lanes * each;
    s.next = each > 1 ? blockDim.x : packs;
    return s;
}

/* The second pack of those from `i` on, or the only one. */
K_FN int64_t k_stream_last(const k_stream *s, int64_t i) {
    return i + s->next < s->packs ? i + s->next : i;
}

#define K_STREAM_LOOP(i, s) for (int64_t i = (s).first; i < (s).packs; i += (s).step)

#endif
