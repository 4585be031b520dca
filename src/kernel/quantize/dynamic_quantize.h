/* dynamic_quantize.h - the range of numbers, which always has 0 in it; NaN counts for nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DYNAMIC_QUANTIZE_H
#define MP_KERNEL_DYNAMIC_QUANTIZE_H

#include "kernel/quantize/quantize.h"

K_FN float d_lower(float low, float x) {
    return x < low ? x : low;
}

K_FN float d_higher(float high, float x) {
    return x > high ? x : high;
}

#endif
