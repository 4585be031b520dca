/* layer_norm.cu - each row minus its mean, over its deviation, times scale, plus bias. One block a
 * row; mean and variance in two passes over the row, which the second finds in cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/block.h"
#include "kernel/reduce_args.h"

K_BLOCK_KERNEL(mp_layer_norm_args, args) {
    const T *scale = (const T *)args.scale;
    const T *bias = (const T *)args.bias;
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const T *x = (const T *)args.x + row * args.columns;
        T *out = (T *)args.out + row * args.columns;
        K_SUM sum = 0;
        K_BLOCK_LOOP(c, args.columns) {
            sum += (K_SUM)T_load(x[c]);
        }
        const K_SUM first = k_block_sum(sum) / (K_SUM)args.columns;
        /* The rounding of a mean that is large beside the deviations shows in what is left over:
         * the second pass sums that too and takes it off. */
        K_SUM rest = 0;
        K_SUM squares = 0;
        K_BLOCK_LOOP(c, args.columns) {
            const K_SUM off = (K_SUM)T_load(x[c]) - first;
            rest += off;
            squares += off * off;
        }
        rest = k_block_sum(rest) / (K_SUM)args.columns;
        const K_SUM mean = first + rest;
        const K_SUM spread = k_block_sum(squares) / (K_SUM)args.columns - rest * rest;
        const K_SUM variance = spread < 0 ? 0 : spread; /* NaN stays */
        const K_SUM inverse = (K_SUM)1 / (K_SUM)sqrt((double)(variance + (K_SUM)args.epsilon));
        K_BLOCK_LOOP(c, args.columns) {
            const K_SUM normal = ((K_SUM)T_load(x[c]) - first - rest) * inverse;
            const K_SUM shift = bias ? (K_SUM)T_load(bias[c]) : (K_SUM)0;
            out[c] = T_store((TC)(normal * (K_SUM)T_load(scale[c]) + shift));
        }
        if (threadIdx.x == 0 && args.mean) {
            ((float *)args.mean)[row] = (float)mean;
        }
        if (threadIdx.x == 0 && args.inverse) {
            ((float *)args.inverse)[row] = (float)inverse;
        }
    }
}
