/* pointwise1.cu - out[i] = f(x[i]). Bound by memory: one read and one write an element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/stream.h"
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

K_FN P_OUT p_apply(T element, float a, float b) {
    const TC x = T_load(element);
    (void)a;
    (void)b;
    return P_STORE(K_EXPRESSION);
}

K_FN p_out p_apply_each(const p_in *in, float a, float b) {
    p_out made;
    K_UNROLL
    for (int k = 0; k < P_WIDTH; k++) {
        made.lane[k] = p_apply(in->lane[k], a, b);
    }
    return made;
}

K_KERNEL(mp_pointwise1_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    P_OUT *out = (P_OUT *)args.out;
    const int aligned = ((uint64_t)x % sizeof(p_in) | (uint64_t)out % sizeof(p_out)) == 0;
    const int64_t packs = aligned && !K_HOST ? args.count / P_WIDTH : 0;
    const k_stream s = k_stream_of(packs);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        p_in in = ((const p_in *)x)[i];
        const p_in ahead = ((const p_in *)x)[last];
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += s.next) {
            ((p_out *)out)[at] = p_apply_each(&in, args.a, args.b);
            in = ahead;
        }
    }
    const int64_t done = packs * P_WIDTH;
    K_ONE_COPY
    K_GRID_LOOP(i, args.count - done) {
        out[done + i] = p_apply(x[done + i], args.a, args.b);
    }
}
