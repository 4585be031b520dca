/* cast.cu - out[i] = x[i] in another element type. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/stream.h"
#include "kernel/pointwise/cast_value.h"
#include "kernel/pointwise/pointwise_args.h"

#if K_HOST
enum { C_WIDTH = 1 };
#else
enum { C_LARGER = sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U), C_WIDTH = 16 / C_LARGER };
#endif
typedef struct K_ALIGN(sizeof(T) * C_WIDTH) c_in {
    T lane[C_WIDTH];
} c_in;
typedef struct K_ALIGN(sizeof(U) * C_WIDTH) c_out {
    U lane[C_WIDTH];
} c_out;

K_FN c_out c_cast_each(const c_in *in) {
    c_out made;
    K_UNROLL
    for (int k = 0; k < C_WIDTH; k++) {
        made.lane[k] = c_cast(in->lane[k]);
    }
    return made;
}

K_KERNEL(mp_pointwise1_args, args) {
    const T *x = (const T *)args.x;
    U *out = (U *)args.out;
    const int aligned = ((uint64_t)x % sizeof(c_in) | (uint64_t)out % sizeof(c_out)) == 0;
    const int64_t packs = aligned && !K_HOST ? args.count / C_WIDTH : 0;
    const k_stream s = k_stream_of(packs);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        c_in in = ((const c_in *)x)[i];
        const c_in ahead = ((const c_in *)x)[last];
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += s.next) {
            ((c_out *)out)[at] = c_cast_each(&in);
            in = ahead;
        }
    }
    const int64_t done = packs * C_WIDTH;
    K_ONE_COPY
    K_GRID_LOOP(i, args.count - done) {
        out[done + i] = c_cast(x[done + i]);
    }
}
