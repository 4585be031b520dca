/* padding_count.cu - where the entries of a batch begin once their padding is gone, how many rows
 * stay in all and at most. One block. A count that no entry can have is the nearest that it can.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"

K_BLOCK_KERNEL(mp_padding_args, args) {
    int64_t before = 0;
    int64_t most = 0;
    for (int64_t start = 0; start < args.batch; start += blockDim.x) {
        const int64_t entry = start + threadIdx.x;
        int64_t count = entry < args.batch ? ((const int32_t *)args.counts)[entry] : 0;
        count = count < 0 ? 0 : count < args.length ? count : args.length;
        int64_t all = 0;
        const int64_t mine = k_block_scan(count, &all);
        if (entry < args.batch) {
            args.starts[entry] = (int32_t)(before + mine);
        }
        most = count > most ? count : most;
        before += all;
    }
    most = k_block_max_i64(most);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.starts[args.batch] = (int32_t)before;
        args.found[0] = before;
        args.found[1] = most;
    }
}
