/* compact_write.cu - the positions of the elements that are not zero, or their indices: one row of
 * the output for each dimension.
 *
 * The lanes of a block count what their runs have, all runs in one number, 16 bits for each: so one
 * scan tells every lane where each of its runs goes.
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
    for (int32_t d = 0; d < args->rank; d++) {
        const int64_t index = args->flags & K_COMPACT_WIDE
                                  ? position / args->stride[d]
                                  : k_divide((uint32_t)position, args->by_stride[d]);
        args->out[d * args->found + at] = index;
        position -= index * args->stride[d];
    }
}

/* The total was counted from the same elements, so `at` stays below it. */
K_FN void put_run(const mp_compact_args *args, uint32_t found, int64_t at, int64_t position) {
    K_ONE_COPY
    for (int e = 0; e < C_RUN; e++) {
        if ((found >> e & 1) && at < args->found) {
            put(args, at, position + e);
        }
        at += found >> e & 1;
    }
}

K_FN int64_t count_of(int64_t counts, int32_t r) {
    return counts >> (r * C_BITS) & ((1 << C_BITS) - 1);
}

K_BLOCK_KERNEL(mp_compact_args, args) {
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0;
        const int64_t size = k_tile(&args, tile, &start);
        int64_t at = args.starts[tile];
        for (int64_t i = 0; i < size; i += (int64_t)blockDim.x * C_RUN * C_RUNS) {
            uint32_t found[C_RUNS];
            int64_t mine = 0, all = 0;
            c_read(&args, (const T *)args.x + start, size, i, found);
            K_UNROLL
            for (int32_t r = 0; r < C_RUNS; r++) {
                mine |= (int64_t)c_count(found[r]) << (r * C_BITS);
            }
            const int64_t before = k_block_scan(mine, &all);
            K_ONE_COPY
            for (int32_t r = 0; r < C_RUNS; r++) {
                put_run(&args, found[0], at + count_of(before, r), start + c_place(i, r));
                at += count_of(all, r);
                K_UNROLL
                for (int32_t k = 0; k + 1 < C_RUNS; k++) {
                    found[k] = found[k + 1];
                }
            }
        }
    }
}
