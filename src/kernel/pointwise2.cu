/* pointwise2.cu - out[i] = f(x[i], y[i]), where either side may be one element. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#define P_BINARY
#include "kernel/pointwise.h"
#include "kernel/pointwise_args.h"

K_FN p_in p_repeat(T element) {
    p_in pack;
    for (int k = 0; k < P_WIDTH; k++) {
        pack.lane[k] = element;
    }
    return pack;
}

K_KERNEL(mp_pointwise2_args, args) {
    const T *x = (const T *)args.x; /* out may be x or y where that has its shape */
    const T *y = (const T *)args.y;
    P_OUT *out = (P_OUT *)args.out;
    const int x_step = args.form != P_SCALAR_X;
    const int y_step = args.form != P_SCALAR_Y;
    const T x0 = x[0];
    const T y0 = y[0];
    const uint64_t skew = (x_step ? (uint64_t)x % sizeof(p_in) : 0) |
                          (y_step ? (uint64_t)y % sizeof(p_in) : 0) | (uint64_t)out % sizeof(p_out);
    const int64_t packs = skew == 0 ? args.count / P_WIDTH : 0;
    K_GRID_LOOP(i, packs) {
        const p_in left = x_step ? ((const p_in *)x)[i] : p_repeat(x0);
        const p_in right = y_step ? ((const p_in *)y)[i] : p_repeat(y0);
        p_out result;
        for (int k = 0; k < P_WIDTH; k++) {
            result.lane[k] = p_apply(left.lane[k], right.lane[k], args.a, args.b);
        }
        ((p_out *)out)[i] = result;
    }
    const int64_t done = packs * P_WIDTH;
    K_GRID_LOOP(i, args.count - done) {
        const T left = x_step ? x[done + i] : x0;
        const T right = y_step ? y[done + i] : y0;
        out[done + i] = p_apply(left, right, args.a, args.b);
    }
}
