/* gated_halves.cu - an activation of the left half of each row times its right half.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/pointwise/pointwise_args.h"

#include "kernel/pointwise/functions.h"

enum { PACK = 16 / sizeof(T) };
typedef struct K_ALIGN(16) h_pack {
    T at[PACK];
} h_pack;

K_FN T h_made(const mp_gated_halves_args *args, T gate, T x) {
    const TC g = T_load(gate);
    const TC active = args->gate == K_GATE_SWISH ? g * p_sigmoid((TC)args->alpha * g)
                                                 : p_gelu(g, args->gate == K_GATE_GELU_BY_TANH);
    return T_store(active * T_load(x));
}

K_KERNEL(mp_gated_halves_args, args) {
    const int64_t half = args.half, step = args.packed ? PACK : 1;
    K_GRID_LOOP(i, args.count) {
        const int64_t row =
            args.wide ? i / args.per_row : (int64_t)k_divide((uint32_t)i, args.by_row);
        const int64_t column = (i - row * args.per_row) * step;
        const T *x = (const T *)args.x + row * 2 * half + column;
        T *out = (T *)args.out + row * half + column;
        if (!args.packed) {
            *out = h_made(&args, x[0], x[half]);
            continue;
        }
        const h_pack gate = *(const h_pack *)x, by = *(const h_pack *)(x + half);
        h_pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = h_made(&args, gate.at[k], by.at[k]);
        }
        *(h_pack *)out = made;
    }
}
