/* clip.cu - out[i] = x[i] kept between two bounds that lie in device memory. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_OUT_BOOL 0
#include "kernel/core/stream.h"
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

typedef struct bounds {
    TC low, high;
    int has_low, has_high;
} bounds;

K_FN T clipped(T element, bounds within) {
    TC value = T_load(element);
    value = within.has_low && value < within.low ? within.low : value;
    value = within.has_high && value > within.high ? within.high : value;
    return T_store(value);
}

K_FN p_in clipped_each(const p_in *in, bounds within) {
    p_in made;
    K_UNROLL
    for (int k = 0; k < P_WIDTH; k++) {
        made.lane[k] = clipped(in->lane[k], within);
    }
    return made;
}

K_KERNEL(mp_clip_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    bounds within;
    within.has_low = args.low != 0;
    within.has_high = args.high != 0;
    within.low = within.has_low ? T_load(*(const T *)args.low) : (TC)0;
    within.high = within.has_high ? T_load(*(const T *)args.high) : (TC)0;
    const int aligned = ((uint64_t)x % sizeof(p_in) | (uint64_t)out % sizeof(p_in)) == 0;
    const int64_t packs = aligned && !K_HOST ? args.count / P_WIDTH : 0;
    const k_stream s = k_stream_of(packs);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        p_in in = ((const p_in *)x)[i];
        const p_in ahead = ((const p_in *)x)[last];
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += s.next) {
            ((p_in *)out)[at] = clipped_each(&in, within);
            in = ahead;
        }
    }
    const int64_t done = packs * P_WIDTH;
    K_ONE_COPY
    K_GRID_LOOP(i, args.count - done) {
        out[done + i] = clipped(x[done + i], within);
    }
}
