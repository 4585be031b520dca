/* dynamic_quantize.cu - floats as uint8 with the scale and zero point that their range asks for.
 *
 * Every block finds the range, from all of x or from what minmax.cu left for each part of it, so
 * that no block waits for another; the first writes scale and zero point down.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/quantize/dynamic_quantize.h"

K_BLOCK_KERNEL(mp_dynamic_quantize_args, args) {
    const float *x = (const float *)args.x;
    const float *low_of = args.parts > 0 ? (const float *)args.ranges : x;
    const float *high_of = args.parts > 0 ? low_of + args.parts : x;
    const int32_t aligned = n_aligned(args.x, args.out);
    float low = 0;
    float high = 0;
    K_BLOCK_LOOP(i, args.parts > 0 ? args.parts : args.count) {
        low = d_lower(low, low_of[i]);
        high = d_higher(high, high_of[i]);
    }
    low = k_block_min_f32(low);
    high = k_block_max_f32(high);
    const float scale = high == low ? 1.0f : (high - low) / 255.0f;
    const float from = rintf((0.0f - low) / scale);
    const float kept = from < 255.0f ? from : 255.0f; /* of infinite ranges this is 255 */
    const int32_t zero = (int32_t)(kept > 0.0f ? kept : 0.0f);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (args.scale != 0) {
            *(float *)args.scale = scale;
        }
        if (args.zero != 0) {
            *(uint8_t *)args.zero = (uint8_t)zero;
        }
    }
    const int64_t wanted = args.out != 0 ? args.count : 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; g * K_GROUP < wanted;
         g += step) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack in;
        n_floats_load(x, first, count, aligned, &in);
        for (int k = 0; k < K_GROUP; k++) {
            bits[k] = q_quantize(&args.type, in.lane[k], scale, zero);
        }
        n_group_store(args.out, 8, first, count, aligned, bits);
    }
}
