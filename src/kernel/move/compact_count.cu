/* compact_count.cu - how many elements of each tile are not zero. NaN is not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/move/compact.h"

K_BLOCK_KERNEL(mp_compact_args, args) {
    const T *x = (const T *)args.x;
    for (int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        int64_t start = 0;
        const int64_t size = k_tile(&args, tile, &start);
        int64_t found = 0;
        K_BLOCK_LOOP(i, size) {
            found += T_load(x[start + i]) != (TC)0;
        }
        found = k_block_sum_i64(found);
        if (threadIdx.x == 0) {
            args.starts[tile] = found;
        }
    }
}
