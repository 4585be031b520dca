/* gated_halves.cu - an activation of the left half of each row times its right half.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/gate.h"
#include "kernel/pointwise/halves.h"

K_KERNEL(mp_gated_halves_args, args) {
    const int64_t half = args.halves.half;
    K_GRID_LOOP(i, args.halves.count) {
        const h_place place = h_at(&args.halves, i);
        const T *x = (const T *)args.x + place.in;
        T *out = (T *)args.out + place.out;
        if (!args.halves.packed) {
            *out = g_gated(args.gate, args.alpha, x[0], x[half]);
            continue;
        }
        const h_pack gate = *(const h_pack *)x, by = *(const h_pack *)(x + half);
        h_pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = g_gated(args.gate, args.alpha, gate.at[k], by.at[k]);
        }
        *(h_pack *)out = made;
    }
}
