/* mask_index.cu - where each row has its first 0; a block a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/rows/row_args.h"

K_BLOCK_KERNEL(mp_mask_index_args, args) {
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const int32_t *mask = args.mask + row * args.columns;
        int64_t first = args.columns;
        K_BLOCK_LOOP(c, args.columns) {
            first = mask[c] == 0 && c < first ? c : first;
        }
        first = k_block_min_i64(first);
        if (threadIdx.x == 0) {
            args.out[row] = (int32_t)first;
        }
    }
}
