/* softmax_args.h - arguments of softmax.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SOFTMAX_ARGS_H
#define MP_KERNEL_SOFTMAX_ARGS_H

#include "kernel/core/types.h"

/* Rows of `columns` elements, `inner` apart: element c of row (o, i) is x[(o * columns + c) * inner
 * + i]. */
typedef struct mp_softmax_args {
    const void *x;
    void *out;
    int64_t rows, columns, inner;
    int32_t width;  /* lanes that share a row */
    int32_t packed; /* rows are packs of 16 aligned bytes */
} mp_softmax_args;

#endif
