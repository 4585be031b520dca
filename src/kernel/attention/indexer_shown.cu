/* indexer_shown.cu - which tokens of an entry a mask shows, one behind the other, and how many up
 * to each token.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/indexer_args.h"
#include "kernel/core/block_scan.h"

K_BLOCK_KERNEL(mp_indexer_shown_args, args) {
    for (int64_t entry = blockIdx.x; entry < args.batch; entry += gridDim.x) {
        const int64_t *mask = (const int64_t *)args.mask + entry * args.total;
        int32_t *shown = args.shown + entry * args.total,
                *listed = args.listed + entry * args.total;
        int64_t before = 0;
        for (int64_t base = 0; base < args.total; base += blockDim.x) {
            const int64_t token = base + threadIdx.x;
            const int64_t one = token < args.total && mask[token] != 0;
            int64_t all = 0;
            const int64_t at = before + k_block_scan(one, &all);
            if (token < args.total) {
                shown[token] = (int32_t)(at + one);
            }
            if (one) {
                listed[at] = (int32_t)token;
            }
            before += all;
        }
    }
}
