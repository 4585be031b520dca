/* batch_norm_stats.cu - mean and variance of each channel over a batch. One block a channel; two
 * passes, the second of which also sums what the rounding of the mean left over, and takes it off.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/channel_args.h"

K_FN K_SUM s_load(const mp_batch_norm_stats_args *args, int64_t channel, int64_t i) {
    const int64_t outer = i / args->inner;
    const int64_t at = (outer * args->channels + channel) * args->inner + (i - outer * args->inner);
    return (K_SUM)T_load(((const T *)args->x)[at]);
}

K_BLOCK_KERNEL(mp_batch_norm_stats_args, args) {
    TC *out = (TC *)args.out;
    const int64_t count = args.outer * args.inner;
    for (int64_t channel = blockIdx.x; channel < args.channels; channel += gridDim.x) {
        K_SUM sum = 0;
        K_BLOCK_LOOP(i, count) {
            sum += s_load(&args, channel, i);
        }
        const K_SUM first = k_block_sum(sum) / (K_SUM)count;
        K_SUM rest = 0;
        K_SUM squares = 0;
        K_BLOCK_LOOP(i, count) {
            const K_SUM off = s_load(&args, channel, i) - first;
            rest += off;
            squares += off * off;
        }
        rest = k_block_sum(rest) / (K_SUM)count;
        const K_SUM spread = k_block_sum(squares) / (K_SUM)count - rest * rest;
        if (threadIdx.x == 0) {
            out[channel] = (TC)(first + rest);
            out[args.channels + channel] = (TC)(spread < 0 ? 0 : spread); /* NaN stays */
        }
    }
}
