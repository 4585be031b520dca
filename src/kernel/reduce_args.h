/* reduce_args.h - arguments of the reductions. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_REDUCE_ARGS_H
#define MP_KERNEL_REDUCE_ARGS_H

#include "kernel/index_args.h"

typedef struct mp_reduce_args {
    const void *x;
    void *out;
    int64_t outputs;  /* elements of out */
    int64_t reduced;  /* elements of x that go into each; may be 0 */
    k_layout kept;    /* view 0: where the first element of an output lies in x */
    k_layout dropped; /* view 0: steps from there */
} mp_reduce_args;

/* Rows of `columns` elements, `inner` apart: element c of row (o, i) is x[(o * columns + c) * inner
 * + i]. */
typedef struct mp_softmax_args {
    const void *x;
    void *out;
    int64_t rows, columns, inner;
} mp_softmax_args;

typedef struct mp_layer_norm_args {
    const void *x, *scale, *bias; /* bias may be NULL; both are of the type of x */
    void *out, *mean, *inverse;   /* the last two are float, or NULL */
    int64_t rows, columns;
    float epsilon;
    int32_t unused;
} mp_layer_norm_args;

#endif
