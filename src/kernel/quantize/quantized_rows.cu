/* quantized_rows.cu - a tensor as unsigned bytes with one scale and zero point, from the ranges of
 * its parts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/quantized_lstm.h"

K_BLOCK_KERNEL(mp_quantized_rows_args, args) {
    const float *x = (const float *)args.x, *range = (const float *)args.range;
    uint8_t *out = (uint8_t *)args.out;
    float least = 0, most = 0;
    K_BLOCK_LOOP(i, args.parts) {
        least = range[2 * i] < least ? range[2 * i] : least;
        most = range[2 * i + 1] > most ? range[2 * i + 1] : most;
    }
    least = k_block_min_f32(least);
    most = k_block_max_f32(most);
    const q_parameter p = q_parameter_of(least, most);
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        ((float *)args.parameter)[0] = p.scale;
        ((float *)args.parameter)[1] = p.zero;
    }
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        out[i] = q_byte(x[i], p);
    }
}
