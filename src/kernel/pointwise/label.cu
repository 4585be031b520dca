/* label.cu - looks each element up in a table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/pointwise/pointwise_args.h"

K_FN uint64_t key_of(const mp_label_args *args, int64_t i) {
    if (args->kind == K_LABEL_INT16) {
        return ((const uint16_t *)args->x)[i];
    }
    if (args->kind == K_LABEL_INT32) {
        return ((const uint32_t *)args->x)[i];
    }
    if (args->kind == K_LABEL_FLOAT) {
        const uint32_t bits = ((const uint32_t *)args->x)[i];
        const uint32_t size = bits & 0x7fffffffu;
        return size > 0x7f800000u ? 0x7fc00000u : size == 0 ? 0 : bits;
    }
    const uint64_t bits = ((const uint64_t *)args->x)[i];
    const uint64_t size = bits & 0x7fffffffffffffffull;
    if (args->kind == K_LABEL_DOUBLE) {
        return size > 0x7ff0000000000000ull ? 0x7ff8000000000000ull : size == 0 ? 0 : bits;
    }
    return bits;
}

K_KERNEL(mp_label_args, args) {
    K_GRID_LOOP(i, args.count) {
        const uint64_t key = key_of(&args, i);
        int64_t low = 0, high = args.entries; /* the first key that is not less lies between */
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (args.table[middle] < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        const int found = low < args.entries && args.table[low] == key;
        const uint64_t value = found ? args.table[args.entries + low] : args.fallback;
        if (args.size == 8) {
            ((uint64_t *)args.out)[i] = value;
        } else if (args.size == 4) {
            ((uint32_t *)args.out)[i] = (uint32_t)value;
        } else {
            ((uint16_t *)args.out)[i] = (uint16_t)value;
        }
    }
}
