/* minmax.cu - the lowest and the highest of x and 0, one pair for each block's part of x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/quantize/dynamic_quantize.h"

K_BLOCK_KERNEL(mp_dynamic_quantize_args, args) {
    const float *x = (const float *)args.x;
    float *ranges = (float *)args.ranges;
    const int32_t aligned = (uint64_t)args.x % 16 == 0;
    const int64_t step = (int64_t)args.parts * blockDim.x;
    for (int64_t part = blockIdx.x; part < args.parts; part += gridDim.x) {
        float low = 0;
        float high = 0;
        for (int64_t g = part * blockDim.x + threadIdx.x; g * K_GROUP < args.count; g += step) {
            const int64_t first = g * K_GROUP;
            const int64_t left = args.count - first;
            n_pack in;
            n_floats_load(x, first, left < K_GROUP ? (int32_t)left : K_GROUP, aligned, &in);
            for (int k = 0; k < K_GROUP; k++) {
                low = d_lower(low, in.lane[k]);
                high = d_higher(high, in.lane[k]);
            }
        }
        low = k_block_min_f32(low);
        high = k_block_max_f32(high);
        if (threadIdx.x == 0) {
            ranges[part] = low;
            ranges[args.parts + part] = high;
        }
    }
}
