/* gated_halves.cu - an activation of one half of each row times its other half, or times the tanh
 * of that.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/gate.h"
#include "kernel/pointwise/halves.h"
#include "kernel/pointwise/halves_gates.h"

K_FN T h_of_sigmoid(int32_t by, T gate, T x) {
    const TC other = T_load(x);
    const TC made = by == K_GATE_OF_SIGMOID_AND_TANH ? K_M(tanh)(other) : other;
    return T_store(p_sigmoid(T_load(gate)) * made);
}

K_FN T h_gated(const mp_gated_halves_args *a, T gate, T x) {
    return a->gate >= K_GATE_OF_SIGMOID ? h_of_sigmoid(a->gate, gate, x)
                                        : g_gated(a->gate, a->alpha, gate, x);
}

/* The branch lies outside of the elements, so that what is fetched is one path's text. */
K_FN h_pack h_gated_pack(const mp_gated_halves_args *a, h_pack gate, h_pack by) {
    h_pack made;
    if (a->gate >= K_GATE_OF_SIGMOID) {
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = h_of_sigmoid(a->gate, gate.at[k], by.at[k]);
        }
        return made;
    }
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        made.at[k] = g_gated(a->gate, a->alpha, gate.at[k], by.at[k]);
    }
    return made;
}

K_KERNEL(mp_gated_halves_args, args) {
    K_GRID_LOOP(i, args.halves.count) {
        const h_place place = h_at(&args.halves, i);
        const T *x = (const T *)args.x + place.in + args.gate_from;
        const T *other = x + args.halves.half - 2 * args.gate_from;
        T *out = (T *)args.out + place.out;
        if (!args.halves.packed) {
            *out = h_gated(&args, x[0], other[0]);
            continue;
        }
        *(h_pack *)out = h_gated_pack(&args, *(const h_pack *)x, *(const h_pack *)other);
    }
}
