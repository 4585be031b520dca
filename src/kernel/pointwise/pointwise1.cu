/* pointwise1.cu - out[i] = f(x[i]). Bound by memory: one read and one write an element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

K_FN P_OUT p_apply(T element, float a, float b) {
    const TC x = T_load(element);
    (void)a;
    (void)b;
    return P_STORE(K_EXPRESSION);
}

K_KERNEL(mp_pointwise1_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    P_OUT *out = (P_OUT *)args.out;
    const int64_t packs = ((uint64_t)x % sizeof(p_in) | (uint64_t)out % sizeof(p_out)) == 0
                              ? args.count / P_WIDTH
                              : 0;
    K_GRID_LOOP(i, packs) {
        const p_in in = ((const p_in *)x)[i];
        p_out result;
        for (int k = 0; k < P_WIDTH; k++) {
            result.lane[k] = p_apply(in.lane[k], args.a, args.b);
        }
        ((p_out *)out)[i] = result;
    }
    const int64_t done = packs * P_WIDTH;
    K_GRID_LOOP(i, args.count - done) {
        out[done + i] = p_apply(x[done + i], args.a, args.b);
    }
}
