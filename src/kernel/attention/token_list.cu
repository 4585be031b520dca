/* token_list.cu - which tokens of each entry of a batch are marked, in their order. A block takes
 * an entry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/block_scan.h"

K_BLOCK_KERNEL(mp_token_list_args, args) {
    for (int64_t entry = blockIdx.x; entry < args.batch; entry += gridDim.x) {
        const int32_t *flags = args.flags + entry * args.rows;
        int32_t *list = args.list + entry * args.rows;
        int64_t before = 0;
        for (int64_t start = 0; start < args.rows; start += blockDim.x) {
            const int64_t row = start + threadIdx.x;
            const int64_t marked = row < args.rows && flags[row] != 0;
            int64_t all = 0;
            const int64_t mine = k_block_scan(marked, &all);
            if (marked) {
                list[before + mine] = (int32_t)row;
            }
            before += all;
        }
        if (threadIdx.x == 0) {
            args.list_count[entry] = (int32_t)before;
        }
    }
}
