/* lp_norm_args.h - arguments of lp_norm.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LP_NORM_ARGS_H
#define MP_KERNEL_LP_NORM_ARGS_H

#include "kernel/core/types.h"

/* Rows as in mp_softmax_args. */
typedef struct mp_lp_norm_args {
    const void *x;
    void *out;
    int64_t rows, columns, inner;
    int32_t p;     /* 1 or 2 */
    int32_t width; /* lanes that share a row */
} mp_lp_norm_args;

#endif
