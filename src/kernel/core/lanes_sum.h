/* lanes_sum.h - sums over neighbouring lanes of a warp, of which the emulated device has one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LANES_SUM_H
#define MP_KERNEL_LANES_SUM_H

#include "kernel/core/prelude.h"

/* Defines `type name(type value, int32_t lanes)`: the sum over each `lanes` neighbours, a power of
 * two up to 32. All lanes of the warp call. */
#if K_HOST
#define K_LANES_SUM(name, type)                 \
    K_FN type name(type value, int32_t lanes) { \
        (void)lanes;                            \
        return value;                           \
    }
#else
#define K_LANES_SUM(name, type)                                 \
    K_FN type name(type value, int32_t lanes) {                 \
        for (int32_t half = lanes / 2; half > 0; half /= 2) {   \
            value += __shfl_xor_sync(0xffffffffu, value, half); \
        }                                                       \
        return value;                                           \
    }
#endif

#endif
