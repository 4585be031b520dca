/* compact_write.cu - the positions of the elements that are not zero, or their indices: one row of
 * the output for each dimension.
 *
 * The lanes of a block count what their runs have, all runs in one number, 16 bits for each: so one
 * scan tells every lane where each of its runs goes. There it leaves, in shared memory, where in
 * the tile its elements are; then neighbouring lanes write neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/core/index.h"
#include "kernel/move/compact.h"

enum { C_BITS = 16 }; /* of a run's count over all lanes, which are 1024 at most */

K_FN void put(const mp_compact_args *args, int64_t at, int64_t position) {
    if (args->rank == 0) {
        args->out[at] = position;
        return;
    }
    K_ONE_COPY
    for (int32_t d = 0; d < args->rank; d++) {
        const int64_t index = args->flags & K_COMPACT_WIDE
                                  ? position / args->stride[d]
                                  : k_divide((uint32_t)position, args->by_stride[d]);
        args->out[d * args->found + at] = index;
        position -= index * args->stride[d];
    }
}

K_FN int32_t count_of(int64_t counts, int32_t r) {
    return (int32_t)(counts >> (r * C_BITS) & ((1 << C_BITS) - 1));
}

/* Leaves in `places` where the elements of the lanes' masks are, in order; how many there are. */
K_FN int32_t order(uint32_t mask, uint16_t *places) {
    int64_t mine = 0, all = 0;
    int32_t at = 0;
    K_UNROLL
    for (int32_t r = 0; r < C_RUNS; r++) {
        mine |= (int64_t)c_count(c_run_of(mask, r)) << (r * C_BITS);
    }
    const int64_t before = k_block_scan(mine, &all);
    K_UNROLL
    for (int32_t r = 0; r < C_RUNS; r++) {
        int32_t to = at + count_of(before, r);
        K_UNROLL
        for (int32_t e = 0; e < C_RUN; e++) {
            if (c_run_of(mask, r) >> e & 1) {
                places[to] = (uint16_t)(c_place(0, r) + e);
                to++;
            }
        }
        at += count_of(all, r);
    }
    return at;
}

K_BLOCK_KERNEL(mp_compact_args, args) {
    K_SHARED(uint16_t, places);
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0;
        const int64_t size = k_tile(&args, tile, &start);
        int64_t at = args.starts[tile];
        for (int64_t i = 0; i < size; i += (int64_t)blockDim.x * K_COMPACT_EACH) {
            const int32_t found = order(*c_mask(&args, start + i), places);
            __syncthreads();
            for (int32_t k = (int32_t)threadIdx.x; k < found; k += (int32_t)blockDim.x) {
                if (at + k < args.found) { /* whatever the masks say */
                    put(&args, at + k, start + i + places[k]);
                }
            }
            at += found;
            __syncthreads();
        }
    }
}
