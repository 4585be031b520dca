/* compact_scan.cu - by one block: from what each tile has to what lies before each, and the total.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/move/indexed_args.h"

K_BLOCK_KERNEL(mp_compact_args, args) {
    int64_t before = 0;
    for (int64_t start = 0; start < args.tiles; start += blockDim.x) {
        const int64_t tile = start + threadIdx.x;
        const int64_t found = tile < args.tiles ? args.starts[tile] : 0;
        int64_t all = 0;
        const int64_t mine = k_block_scan(found, &all);
        if (tile < args.tiles) {
            args.starts[tile] = before + mine;
        }
        before += all;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.total[0] = before;
    }
}
