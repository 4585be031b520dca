/* moe_tiles.cu - where each expert's routes begin among the sorted ones, and its tiles among all.
 * One block.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

K_FN int64_t first_from(const k_pair *sorted, int64_t count, uint64_t key) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sorted[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

K_BLOCK_KERNEL(mp_moe_tiles_args, args) {
    int64_t *first = (int64_t *)args.first, *tiles = (int64_t *)args.tiles;
    if (blockIdx.x != 0) {
        return;
    }
    K_BLOCK_LOOP(e, args.experts + 1) {
        first[e] = first_from((const k_pair *)args.sorted, args.routes, (uint64_t)e);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int64_t before = 0;
        for (int64_t e = 0; e < args.experts; e++) {
            tiles[e] = before;
            before += (first[e + 1] - first[e] + args.tile - 1) / args.tile;
        }
        tiles[args.experts] = before;
    }
}
