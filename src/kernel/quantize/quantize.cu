/* quantize.cu - floats as elements of a quantised type. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize.h"

K_KERNEL(mp_quantize_args, args) {
    const T *x = (const T *)args.x;
    const int32_t aligned = n_aligned(args.x, args.out);
    float scale = q_scale(args.scale, args.scale_type, 0);
    int32_t zero = q_zero(args.zero, &args.type, 0);
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack in;
        n_floats_load(x, first, count, aligned, &in);
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
            bits[k] = q_quantize(&args.type, T_load(in.lane[k]), scale, zero);
        }
        n_group_store(args.out, args.type.width, first, count, aligned, bits);
    }
}
