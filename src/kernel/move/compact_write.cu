/* compact_write.cu - the positions of the elements that are not zero, or their indices: one row of
 * the output for each dimension.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/move/compact.h"

K_FN void put(const mp_compact_args *args, int64_t at, int64_t position) {
    if (args->rank == 0) {
        args->out[at] = position;
    }
    for (int32_t d = 0; d < args->rank; d++) {
        const int64_t index = position / args->stride[d];
        args->out[d * args->found + at] = index;
        position -= index * args->stride[d];
    }
}

K_BLOCK_KERNEL(mp_compact_args, args) {
    const T *x = (const T *)args.x;
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0;
        const int64_t size = k_tile(&args, tile, &start);
        int64_t at = args.starts[tile];
        for (int64_t i = 0; i < size; i += blockDim.x) {
            const int64_t mine = i + threadIdx.x;
            const int64_t is_found = mine < size && T_load(x[start + mine]) != (TC)0;
            int64_t all = 0;
            const int64_t before = k_block_scan(is_found, &all);
            /* The total was counted from the same elements, so `at` stays below it. */
            if (is_found && at + before < args.found) {
                put(&args, at + before, start + mine);
            }
            at += all;
        }
    }
}
