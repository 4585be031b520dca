/* scan_counts.cu - each count becomes the sum of those before it in its row; a block a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block_scan.h"
#include "kernel/rows/sort_args.h"

K_BLOCK_KERNEL(mp_scan_counts_args, args) {
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        int64_t *counts = args.counts + row * args.length;
        int64_t before = 0;
        for (int64_t i = 0; i < args.length; i += blockDim.x) {
            const int64_t mine = i + threadIdx.x;
            const int64_t count = mine < args.length ? counts[mine] : 0;
            int64_t all = 0;
            const int64_t sum = k_block_scan(count, &all);
            if (mine < args.length) {
                counts[mine] = before + sum;
            }
            before += all;
        }
        if (args.totals && threadIdx.x == 0) {
            args.totals[row] = before;
        }
    }
}
