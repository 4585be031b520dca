/* split_gelu.cu - with a bias added to each row, its left half times Gelu of its right half.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/pointwise/pointwise_args.h"

#include "kernel/pointwise/functions.h"

enum { PACK = 16 / sizeof(T) };
typedef struct K_ALIGN(16) s_pack {
    T at[PACK];
} s_pack;

K_FN T s_made(T left, T left_bias, T right, T right_bias) {
    const TC factor = T_load(left) + T_load(left_bias);
    return T_store(factor * p_gelu(T_load(right) + T_load(right_bias), 0));
}

K_KERNEL(mp_split_gelu_args, args) {
    const int64_t half = args.half, step = args.packed ? PACK : 1;
    K_GRID_LOOP(i, args.count) {
        const int64_t row =
            args.wide ? i / args.per_row : (int64_t)k_divide((uint32_t)i, args.by_row);
        const int64_t column = (i - row * args.per_row) * step;
        const T *x = (const T *)args.x + row * 2 * half + column;
        const T *bias = (const T *)args.bias + column;
        T *out = (T *)args.out + row * half + column;
        if (!args.packed) {
            *out = s_made(x[0], bias[0], x[half], bias[half]);
            continue;
        }
        const s_pack left = *(const s_pack *)x, right = *(const s_pack *)(x + half);
        const s_pack by = *(const s_pack *)bias, other = *(const s_pack *)(bias + half);
        s_pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = s_made(left.at[k], by.at[k], right.at[k], other.at[k]);
        }
        *(s_pack *)out = made;
    }
}
