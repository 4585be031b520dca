/* compact_count.cu - how many elements of each tile are not zero. NaN is not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/move/compact.h"

K_BLOCK_KERNEL(mp_compact_args, args) {
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0, all = 0;
        const int64_t size = k_tile(&args, tile, &start);
        for (int64_t i = 0; i < size; i += (int64_t)blockDim.x * C_RUN * C_RUNS) {
            uint32_t found[C_RUNS];
            c_read(&args, (const T *)args.x + start, size, i, found);
            K_UNROLL
            for (int32_t r = 0; r < C_RUNS; r++) {
                all += c_count(found[r]);
            }
        }
        all = k_block_sum_i64(all);
        if (threadIdx.x == 0) {
            args.starts[tile] = all;
        }
    }
}
