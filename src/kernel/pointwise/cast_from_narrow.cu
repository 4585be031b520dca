/* cast_from_narrow.cu - elements of a type that is only stored, as floats. Exact but for the one
 * rounding of a narrow T.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/narrow_value.h"

K_KERNEL(mp_cast_narrow_args, args) {
    T *out = (T *)args.out;
    const int32_t aligned = n_aligned(args.x, args.out);
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack result;
        n_group_load(args.x, args.type.width, first, count, aligned, bits);
        for (int k = 0; k < K_GROUP; k++) {
            result.lane[k] = T_store(n_from_bits(&args.type, bits[k]));
        }
        n_floats_store(out, first, count, aligned, &result);
    }
}
