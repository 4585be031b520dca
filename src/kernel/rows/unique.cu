/* unique.cu - compares slices: one step of sorting them, or which differ from the one before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"

/* -1, 0 or 1. */
K_FN int compare(const mp_unique_args *args, int64_t a, int64_t b) {
    const T *x = (const T *)args->x;
    for (int64_t j = 0; j < args->length; j++) {
        const int64_t outer = j / args->inner;
        const int64_t at = outer * args->slices * args->inner + (j - outer * args->inner);
        const uint64_t left = k_order_key((uint64_t)x[at + a * args->inner], args->order);
        const uint64_t right = k_order_key((uint64_t)x[at + b * args->inner], args->order);
        if (left != right) {
            return left < right ? -1 : 1;
        }
    }
    return 0;
}

/* Equal slices keep their order; what is no slice comes last. */
K_FN int is_after(const mp_unique_args *args, int64_t a, int64_t b) {
    if (a < 0 || b < 0) {
        return a < 0 && b >= 0;
    }
    const int order = compare(args, a, b);
    return order > 0 || (order == 0 && a > b);
}

K_FN void network_step(const mp_unique_args *args, int64_t i) {
    const int64_t low = 2 * i - (i & (args->step - 1)), high = low + args->step;
    const int64_t a = args->pairs[low].index, b = args->pairs[high].index;
    const int down = (low & args->run) != 0;
    if (down ? is_after(args, b, a) : is_after(args, a, b)) {
        args->pairs[low].index = b;
        args->pairs[high].index = a;
    }
}

K_KERNEL(mp_unique_args, args) {
    if (args.stage == K_UNIQUE_STEP) {
        K_GRID_LOOP(i, args.padded / 2) {
            network_step(&args, i);
        }
        return;
    }
    K_GRID_LOOP(i, args.slices) {
        args.flags[i] = i == 0 || compare(&args, args.pairs[i - 1].index, args.pairs[i].index) != 0;
    }
}
