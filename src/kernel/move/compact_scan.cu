/* compact_scan.cu - by one block: from what each tile has to what lies before each, and the total.
 * A lane has some neighbouring tiles, which are on their way together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/move/indexed_args.h"

enum { C_TILES = 4 };

K_BLOCK_KERNEL(mp_compact_args, args) {
    int64_t before = 0;
    for (int64_t start = 0; start < args.tiles; start += (int64_t)blockDim.x * C_TILES) {
        const int64_t first = start + (int64_t)threadIdx.x * C_TILES;
        int64_t found[C_TILES], mine = 0, all = 0;
        K_UNROLL
        for (int k = 0; k < C_TILES; k++) {
            found[k] = first + k < args.tiles ? args.starts[first + k] : 0;
        }
        K_UNROLL
        for (int k = 0; k < C_TILES; k++) {
            mine += found[k];
        }
        int64_t at = before + k_block_scan(mine, &all);
        K_UNROLL
        for (int k = 0; k < C_TILES; k++) {
            if (first + k < args.tiles) {
                args.starts[first + k] = at;
            }
            at += found[k];
        }
        before += all;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.total[0] = before;
    }
}
