/* byte_set.cu - out[i] = whether the byte x[i] is one of a set, such as the NaNs of a type of eight
 * bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/narrow_value.h"

K_KERNEL(mp_byte_set_args, args) {
    uint8_t *out = (uint8_t *)args.out;
    const int32_t aligned = n_aligned(args.x, args.out);
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_group_load(args.x, 8, first, count, aligned, bits);
        for (int k = 0; k < K_GROUP; k++) {
            bits[k] = args.set[bits[k] >> 5] >> (bits[k] & 31u) & 1u;
        }
        n_group_store(out, 8, first, count, aligned, bits);
    }
}
