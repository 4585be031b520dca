/* ordered_norm.cu - rows of bytes normalised, a block for each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/quantize/ordered.h"

K_BLOCK_KERNEL(mp_ordered_norm_args, args) {
    const int64_t size = args.rows * args.columns, length = args.columns;
    const float x_scale = o_scale(args.x_scale), out_scale = o_scale(args.out_scale);
    const T *gamma = (const T *)args.gamma, *beta = (const T *)args.beta;
    for (int64_t i = blockIdx.x; i < args.matrices * args.rows; i += gridDim.x) {
        const int64_t matrix = i / args.rows, row = i - matrix * args.rows;
        const int8_t *x = (const int8_t *)args.x + matrix * size;
        int8_t *out = (int8_t *)args.out + matrix * size;
        float sum = 0, squares = 0;
        K_BLOCK_LOOP(c, length) {
            sum += (float)x[o_place(args.order, args.rows, length, row, c)];
        }
        const float mean = (float)k_block_sum(sum) / (float)length;
        K_BLOCK_LOOP(c, length) {
            const float off = (float)x[o_place(args.order, args.rows, length, row, c)] - mean;
            squares += off * off;
        }
        const float variance = (float)k_block_sum(squares) / (float)length * x_scale * x_scale;
        const float share = x_scale / sqrtf(variance + args.epsilon);
        K_BLOCK_LOOP(c, length) {
            const int64_t at = o_place(args.order, args.rows, length, row, c);
            const float value = ((float)x[at] - mean) * share * T_load(gamma[c]);
            out[at] = o_byte((value + (beta ? T_load(beta[c]) : 0)) / out_scale);
        }
    }
}
