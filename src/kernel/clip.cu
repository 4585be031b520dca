/* clip.cu - out[i] = x[i] kept between two bounds that lie in device memory. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#define K_OUT_BOOL 0
#include "kernel/pointwise.h"
#include "kernel/pointwise_args.h"

K_KERNEL(mp_clip_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    const TC low = args.low ? T_load(*(const T *)args.low) : (TC)0;
    const TC high = args.high ? T_load(*(const T *)args.high) : (TC)0;
    const int has_low = args.low != 0;
    const int has_high = args.high != 0;
    K_GRID_LOOP(i, args.count) {
        TC value = T_load(x[i]);
        value = has_low && value < low ? low : value;
        value = has_high && value > high ? high : value;
        out[i] = T_store(value);
    }
}
