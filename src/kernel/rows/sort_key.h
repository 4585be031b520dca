/* sort_key.h - elements of any type as unsigned keys in the same order, so that kernels which
 * compare are built for widths and not for types. -0 equals +0; NaN is above +inf.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SORT_KEY_H
#define MP_KERNEL_SORT_KEY_H

#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

K_FN int k_order_is_nan(uint64_t bits, k_order o) {
    return o.inf != 0 && (bits & ~o.sign) > o.inf;
}

/* Smaller keys come first. */
K_FN uint64_t k_order_key(uint64_t bits, k_order o) {
    uint64_t key = bits ^ o.sign;
    if (k_order_is_nan(bits, o)) {
        key = o.all;
    } else if (o.inf != 0 && bits == o.sign) {
        key = o.sign;
    } else if (o.inf != 0 && (bits & o.sign) != 0) {
        key = ~bits & o.all;
    }
    return key ^ o.flip;
}

#endif
