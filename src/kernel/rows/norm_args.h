/* norm_args.h - arguments of norm.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NORM_ARGS_H
#define MP_KERNEL_NORM_ARGS_H

#include "kernel/core/index_args.h"

/* out = (v - mean(v)) / (sqrt(variance(v) + epsilon) + floor) * scale + bias for each contiguous
 * row, where v = x + skip + add. Pointers other than x and out may be NULL. */
typedef struct mp_norm_args {
    const void *x;
    const void *skip; /* rows as of x, `skip_rows` of them, repeated */
    const void *add;  /* one row */
    const void *scale, *bias;
    void *out, *sum;      /* sum gets v */
    void *mean, *inverse; /* one for each row, of float */
    int64_t rows, columns, skip_rows;
    int64_t groups, per_row, inner; /* element c of row r has the scale (r % groups) * per_row + c /
                                     * inner; per_row of 0: the scale c */
    k_divider by_inner;             /* or by 2^30, if that is less */
    float epsilon, floor;
    int32_t centred;    /* 0: the mean counts as 0 */
    int32_t wide_stats; /* mean and inverse are of double */
    int32_t width;      /* lanes that share a row */
} mp_norm_args;

#endif
