/* split_gelu.cu - with a bias added to each row, its left half times Gelu of its right half.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/halves.h"

#include "kernel/pointwise/functions.h"

K_FN T s_made(T left, T left_bias, T right, T right_bias) {
    const TC factor = T_load(left) + T_load(left_bias);
    return T_store(factor * p_gelu(T_load(right) + T_load(right_bias), 0));
}

K_KERNEL(mp_split_gelu_args, args) {
    const int64_t half = args.halves.half;
    K_GRID_LOOP(i, args.halves.count) {
        const h_place place = h_at(&args.halves, i);
        const T *x = (const T *)args.x + place.in;
        const T *bias = (const T *)args.bias + place.column;
        T *out = (T *)args.out + place.out;
        if (!args.halves.packed) {
            *out = s_made(x[0], bias[0], x[half], bias[half]);
            continue;
        }
        const h_pack left = *(const h_pack *)x, right = *(const h_pack *)(x + half);
        const h_pack by = *(const h_pack *)bias, other = *(const h_pack *)(bias + half);
        h_pack made;
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            made.at[k] = s_made(left.at[k], by.at[k], right.at[k], other.at[k]);
        }
        *(h_pack *)out = made;
    }
}
