/* group_merge.cu - from what is known of each channel in each slice to the mean and the deviation
 * of each group; a block a group.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/rows/row_args.h"

#if K_HOST
#define g_sqrt sqrt
#else
#define g_sqrt sqrtf
#endif

/* What slice `slice` has, which is not empty. */
K_FN K_SUM g_pixels(const mp_group_norm_args *args, int64_t slice) {
    const int64_t left = args->pixels - slice * args->slice;
    return (K_SUM)(left < args->slice ? left : args->slice);
}

K_BLOCK_KERNEL(mp_group_norm_args, args) {
    const int64_t each = args.channels / args.groups;
    for (int64_t item = blockIdx.x; item < args.batch * args.groups; item += gridDim.x) {
        const int64_t n = item / args.groups, group = item - n * args.groups;
        const float *partial = args.partial + (n * args.slices * args.channels + group * each) * 2;
        const K_SUM total = (K_SUM)args.pixels * (K_SUM)each;
        K_SUM mean = 0, squares = 0;
        K_BLOCK_LOOP(i, args.slices * each) {
            const int64_t slice = i / each;
            const float *from = partial + (slice * args.channels + (i - slice * each)) * 2;
            mean += (K_SUM)from[0] * (g_pixels(&args, slice) / total);
        }
        mean = k_block_sum(mean);
        K_BLOCK_LOOP(i, args.slices * each) {
            const int64_t slice = i / each;
            const float *from = partial + (slice * args.channels + (i - slice * each)) * 2;
            const K_SUM off = (K_SUM)from[0] - mean;
            squares += (K_SUM)from[1] + off * off * g_pixels(&args, slice);
        }
        squares = k_block_sum(squares);
        if (threadIdx.x == 0) {
            args.moments[2 * item] = (float)mean;
            args.moments[2 * item + 1] =
                (float)((K_SUM)1 / g_sqrt(squares / total + (K_SUM)args.epsilon));
        }
    }
}
