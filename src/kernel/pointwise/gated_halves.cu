/* gated_halves.cu - an activation of one half of each row times its other half.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/gate.h"
#include "kernel/pointwise/halves.h"

K_KERNEL(mp_gated_halves_args, args) {
    K_GRID_LOOP(i, args.halves.count) {
        const h_place place = h_at(&args.halves, i);
        const T *x = (const T *)args.x + place.in + args.gate_from;
        const T *other = x + args.halves.half - 2 * args.gate_from;
        T *out = (T *)args.out + place.out;
        if (!args.halves.packed) {
            *out = g_gated(args.gate, args.alpha, x[0], other[0]);
            continue;
        }
        const h_pack gate = *(const h_pack *)x, by = *(const h_pack *)other;
        h_pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = g_gated(args.gate, args.alpha, gate.at[k], by.at[k]);
        }
        *(h_pack *)out = made;
    }
}
