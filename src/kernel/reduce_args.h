/* reduce_args.h - arguments of the reductions. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_REDUCE_ARGS_H
#define MP_KERNEL_REDUCE_ARGS_H

#include "kernel/index_args.h"

enum { K_REDUCE_WHOLE, K_REDUCE_PIECES, K_REDUCE_MERGE };

/* Lanes that share a row and keep it in their registers. */
enum { K_ROW_LANES_MAX = 512 };

typedef struct mp_reduce_args {
    const void *x;
    void *out;
    void *partial;   /* 8 bytes for each piece of each output */
    int64_t outputs; /* elements of out */
    int64_t reduced; /* elements of x that go into each; may be 0 */
    int64_t pieces;  /* parts that they are reduced in, by launches of their own, */
    int64_t piece;   /* and how many each has */
    int32_t stage;   /* K_REDUCE_... */
    int32_t width;   /* lanes that share a part, where they are neighbours in x; 0 elsewhere */
    int32_t packed;  /* and may be read by 16 bytes */
    int32_t unused;
    k_layout kept;    /* view 0: where the first element of an output lies in x */
    k_layout dropped; /* view 0: steps from there */
} mp_reduce_args;

/* Rows of `columns` elements, `inner` apart: element c of row (o, i) is x[(o * columns + c) * inner
 * + i]. */
typedef struct mp_softmax_args {
    const void *x;
    void *out;
    int64_t rows, columns, inner;
    int32_t width;  /* lanes that share a row */
    int32_t packed; /* rows may be read by 16 bytes */
} mp_softmax_args;

#endif
