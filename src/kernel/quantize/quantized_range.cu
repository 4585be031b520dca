/* quantized_range.cu - the least and the largest number of each part of a tensor, 0 included.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/quantized_lstm.h"

K_BLOCK_KERNEL(mp_quantized_range_args, args) {
    const float *x = (const float *)args.x;
    float least = 0, most = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    least = k_block_min_f32(least);
    most = k_block_max_f32(most);
    if (threadIdx.x == 0) {
        ((float *)args.range)[2 * blockIdx.x] = least;
        ((float *)args.range)[2 * blockIdx.x + 1] = most;
    }
}
