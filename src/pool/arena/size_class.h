/* size_class.h - sizes in units of 256 bytes, and the bins that chunks of a size belong to.
 *
 * Below 64 units each size has a class of its own; above, every power of two is cut into 32, so the
 * chunks of a class differ by less than 1/32.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_SIZE_CLASS_H
#define MP_POOL_SIZE_CLASS_H

#include "device/device.h"

enum {
    UNIT = MP_ALIGNMENT,
    EXACT_CLASSES = 64,
    STEP_BITS = 5,
    CLASS_COUNT = EXACT_CLASSES + (32 - 6) * (1 << STEP_BITS), /* every 32-bit count of units */
};

#define UNITS_MAX ((uint64_t)UINT32_MAX) /* of one chunk: just below 1 TiB */

static inline int class_of(uint32_t units) {
    if (units < EXACT_CLASSES) {
        return (int)units;
    }
    const int power = 31 - __builtin_clz(units);
    const int step = (int)(units >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    return EXACT_CLASSES + (power - 6) * (1 << STEP_BITS) + step;
}

#endif
