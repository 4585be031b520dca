/* cast_to_narrow.cu - floats as elements of a type that is only stored; with T = i8, integers whose
 * low bits are kept.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/narrow_value.h"

K_KERNEL(mp_cast_narrow_args, args) {
    const T *x = (const T *)args.x;
    const int32_t aligned = n_aligned(args.x, args.out);
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack in;
        n_floats_load(x, first, count, aligned, &in);
        for (int k = 0; k < K_GROUP; k++) {
#if T_FLOAT
            bits[k] = n_to_bits(&args.type, T_load(in.lane[k]));
#else
            bits[k] = (uint32_t)T_load(in.lane[k]);
#endif
        }
        n_group_store(args.out, args.type.width, first, count, aligned, bits);
    }
}
