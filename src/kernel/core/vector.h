/* vector.h - some neighbouring elements that one lane makes, so that it divides once for all of
 * them and writes them at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_VECTOR_H
#define MP_KERNEL_VECTOR_H

#include "kernel/core/prelude.h"

enum { K_VECTOR = sizeof(T) <= 4 ? 4 : sizeof(T) == 8 ? 2 : 1 };
typedef struct K_ALIGN(sizeof(T) * K_VECTOR) k_vector {
    T lane[K_VECTOR];
} k_vector;

/* Writes what begins at element `first` of `out`, which has `count`. */
K_FN void k_vector_write(T *out, int64_t first, int64_t count, k_vector made) {
    if ((uint64_t)out % sizeof(k_vector) == 0 && first + K_VECTOR <= count) {
        *(k_vector *)(out + first) = made;
        return;
    }
    for (int k = 0; k < K_VECTOR && first + k < count; k++) {
        out[first + k] = made.lane[k];
    }
}

#endif
