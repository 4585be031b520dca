/* found.h - between which numbers a tensor is kept, by what sum_infinite.cu has found in it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FOUND_H
#define MP_KERNEL_FOUND_H

#include "kernel/core/prelude.h"
#include "kernel/rows/row_args.h"

typedef struct K_ALIGN(16) k_found {
    uint32_t at[4];
} k_found;

enum { K_FOUND_READS = K_FOUND_PIECES / sizeof(k_found) };

/* Every lane reads all bytes, which are the same few lines for all of them. */
K_FN float k_most(const void *found, const float *most) {
    const k_found *from = (const k_found *)found;
    k_found part[K_FOUND_READS];
    uint32_t any = 0;
    K_UNROLL
    for (int32_t i = 0; i < K_FOUND_READS; i++) {
        part[i] = from[i];
    }
    K_UNROLL
    for (int32_t i = 0; i < K_FOUND_READS; i++) {
        any |= part[i].at[0] | part[i].at[1] | part[i].at[2] | part[i].at[3];
    }
    return any != 0 ? most[1] : most[0];
}

/* NaN stays. */
K_FN float k_within(float value, float most) {
    value = value < -most ? -most : value;
    return value > most ? most : value;
}

#endif
