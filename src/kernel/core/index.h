/* index.h - positions in tensors that are broadcast, transposed or sliced.
 *
 * The operator coalesces dimensions first, so most tensors arrive with one or two. A position is
 * found from the element's number by division; below 2^31 elements by a multiplication and a shift
 * (k_divider), above by 64-bit division.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEX_H
#define MP_KERNEL_INDEX_H

#include "kernel/core/index_args.h"
#include "kernel/core/prelude.h"

/* n / d for n below 2^31. */
K_FN uint32_t k_divide(uint32_t n, k_divider d) {
#if K_HOST
    const uint32_t high = (uint32_t)(((uint64_t)n * d.multiplier) >> 32);
#else
    const uint32_t high = __umulhi(n, d.multiplier);
#endif
    return (high + n) >> d.shift;
}

/* a / b, neither negative; nearly always both have 32 bits, which are divided sooner. */
K_FN int64_t k_divide_any(int64_t a, int64_t b) {
    return ((uint64_t)(a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

typedef struct k_quotient {
    int64_t whole, rest;
} k_quotient;

/* n / d; where that is `wide`, n may be 2^31 or more, and the divider is not used. */
K_FN k_quotient k_quotient_of(int64_t n, int64_t d, k_divider by, int32_t wide) {
    k_quotient q;
    q.whole = wide ? n / d : (int64_t)k_divide((uint32_t)n, by);
    q.rest = n - q.whole * d;
    return q;
}

/* Offsets of element `n` of an iteration space that is not wide, in up to K_VIEWS tensors. */
K_FN void k_offsets_narrow(const k_layout *layout, uint32_t n, int32_t views, int64_t *offset) {
    for (int32_t v = 0; v < views; v++) {
        offset[v] = 0;
    }
    for (int32_t d = layout->rank - 1; d > 0; d--) {
        const uint32_t outer = k_divide(n, layout->divider[d]);
        const int64_t at = n - outer * (uint32_t)layout->dim[d];
        for (int32_t v = 0; v < views; v++) {
            offset[v] += at * layout->stride[v][d];
        }
        n = outer;
    }
    for (int32_t v = 0; v < views; v++) {
        offset[v] += n * layout->stride[v][0];
    }
}

/* The same for any. */
K_FN void k_offsets(const k_layout *layout, int64_t i, int32_t views, int64_t *offset) {
    if (!layout->wide) {
        k_offsets_narrow(layout, (uint32_t)i, views, offset);
        return;
    }
    for (int32_t v = 0; v < views; v++) {
        offset[v] = 0;
    }
    for (int32_t d = layout->rank - 1; d > 0; d--) {
        const int64_t outer = i / layout->dim[d];
        const int64_t at = i - outer * layout->dim[d];
        for (int32_t v = 0; v < views; v++) {
            offset[v] += at * layout->stride[v][d];
        }
        i = outer;
    }
    for (int32_t v = 0; v < views; v++) {
        offset[v] += i * layout->stride[v][0];
    }
}

#endif
