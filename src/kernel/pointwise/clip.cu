/* clip.cu - out[i] = x[i] kept between two bounds that lie in device memory. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/pointwise/pointwise_args.h"

#define M_OUT T
typedef struct bounds {
    TC low, high;
    int has_low, has_high;
} m_with;

K_FN T m_one(T element, const m_with *within) {
    TC value = T_load(element);
    value = within->has_low && value < within->low ? within->low : value;
    value = within->has_high && value > within->high ? within->high : value;
    return T_store(value);
}

#include "kernel/core/stream_map.h"

K_KERNEL(mp_clip_args, args) {
    m_with within;
    within.has_low = args.low != 0;
    within.has_high = args.high != 0;
    within.low = within.has_low ? T_load(*(const T *)args.low) : (TC)0;
    within.high = within.has_high ? T_load(*(const T *)args.high) : (TC)0;
    m_map((const T *)args.x, (T *)args.out, args.count, &within);
}
