/* norm.h - what the kernels that normalise rows make of a row's sums.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NORM_H
#define MP_KERNEL_NORM_H

#include "kernel/core/block.h"
#include "kernel/rows/row_args.h"

#if T_DOUBLE || K_HOST
#define n_sqrt sqrt
#else
#define n_sqrt sqrtf
#endif

/* The rounding of a mean that is large beside the deviations shows in what is left over when it is
 * taken off. Elements of 16 bits are rounded far more than that themselves. */
enum { N_REST = sizeof(T) > 2 };

/* What a lane has seen of a row: what is left over besides, if that is looked at. */
typedef struct n_spread {
    K_SUM off, squares;
} n_spread;

typedef struct n_moments {
    K_SUM mean, rest, inverse; /* the mean is `mean` + `rest` */
} n_moments;

K_FN n_moments n_moments_of(const mp_norm_args *args, n_spread all, K_SUM mean) {
    n_moments m;
    m.mean = mean;
    m.rest = N_REST && args->centred ? all.off / (K_SUM)args->columns : (K_SUM)0;
    const K_SUM squares = all.squares / (K_SUM)args->columns - m.rest * m.rest;
    const K_SUM variance = squares < 0 ? 0 : squares; /* NaN stays */
    m.inverse = (K_SUM)1 / (n_sqrt(variance + (K_SUM)args->epsilon) + (K_SUM)args->floor);
    return m;
}

K_FN void n_put_stat(void *out, int wide, int64_t row, K_SUM value) {
    if (out && wide) {
        ((double *)out)[row] = (double)value;
    } else if (out) {
        ((float *)out)[row] = (float)value;
    }
}

#endif
