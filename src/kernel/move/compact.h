/* compact.h - tiles in which elements are counted and picked out, and the runs that a lane has of
 * them: some neighbours each, beside those of the lanes beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COMPACT_H
#define MP_KERNEL_COMPACT_H

#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

enum {
    C_RUN = 4,                       /* neighbours of a run */
    C_RUNS = K_COMPACT_EACH / C_RUN, /* runs of a lane: those that are on their way together */
};

/* The elements of a tile; `*start` is the first one. */
K_FN int64_t k_tile(const mp_compact_args *args, int64_t tile, int64_t *start) {
    *start = tile * args->tile;
    const int64_t left = args->count - *start;
    return left < args->tile ? left : args->tile;
}

/* Where run `r` of this lane begins, of those that all lanes have together from `i` on. */
K_FN int64_t c_place(int64_t i, int32_t r) {
    return i + ((int64_t)r * blockDim.x + threadIdx.x) * C_RUN;
}

/* Which of the lane's elements from element `first` of x on are not zero: a bit each, run by run.
 */
K_FN uint16_t *c_mask(const mp_compact_args *args, int64_t first) {
    return args->masks + first / K_COMPACT_EACH + threadIdx.x;
}

/* The bits of run `r`. */
K_FN uint32_t c_run_of(uint32_t mask, int32_t r) {
    return mask >> (r * C_RUN) & ((1u << C_RUN) - 1);
}

K_FN int32_t c_count(uint32_t bits) {
#if K_HOST
    return __builtin_popcount(bits);
#else
    return __popc(bits);
#endif
}

#endif
