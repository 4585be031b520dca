/* dequantize.cu - (x - zero) * scale of a quantised type. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize.h"

K_KERNEL(mp_quantize_args, args) {
    T *out = (T *)args.out;
    const int32_t aligned = n_aligned(args.x, args.out);
    const int32_t whole = args.type.kind <= K_NARROW_SIGNED;
    float scale = q_scale(args.scale, args.scale_type, 0);
    int32_t zero = q_zero(args.zero, &args.type, 0);
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack result;
        n_group_load(args.x, args.type.width, first, count, aligned, bits);
        if (args.scales.shared == K_SCALES_BY_GROUP) {
            const int64_t place = q_place(&args.scales, first);
            scale = q_scale(args.scale, args.scale_type, place);
            zero = q_zero(args.zero, &args.type, place);
        }
        for (int k = 0; k < K_GROUP; k++) {
            if (args.scales.shared == K_SCALES_BY_ELEMENT) {
                const int64_t place = q_place(&args.scales, first + (k < count ? k : 0));
                scale = q_scale(args.scale, args.scale_type, place);
                zero = q_zero(args.zero, &args.type, place);
            }
            const int32_t moved =
                (int32_t)((uint32_t)n_whole(&args.type, bits[k]) - (uint32_t)zero);
            const float value = whole ? (float)moved : n_from_bits(&args.type, bits[k]);
            result.lane[k] = T_store(value * scale);
        }
        n_floats_store(out, first, count, aligned, &result);
    }
}
