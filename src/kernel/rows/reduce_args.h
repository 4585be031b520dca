/* reduce_args.h - arguments of reduce.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_REDUCE_ARGS_H
#define MP_KERNEL_REDUCE_ARGS_H

#include "kernel/core/index_args.h"

enum { K_REDUCE_WHOLE, K_REDUCE_PIECES, K_REDUCE_MERGE };

/* Where what goes into an output lies: in neighbours, at least those of a piece; somewhere; or in
 * any way, but the outputs are neighbours. */
enum { K_REDUCE_RUNS, K_REDUCE_APART, K_REDUCE_COLUMNS };

/* What is made of the result. */
enum { K_REDUCE_AS_IS, K_REDUCE_MEAN, K_REDUCE_ROOT, K_REDUCE_LOG };

/* Lanes of a block, with registers enough. */
enum { K_REDUCE_LANES_MAX = 512 };

typedef struct mp_reduce_args {
    const void *x;
    void *out;
    void *partial;   /* 8 bytes for each piece of each output */
    int64_t outputs; /* elements of out */
    int64_t reduced; /* elements of x that go into each; may be 0 */
    int64_t pieces;  /* parts that they are reduced in, by launches of their own, */
    int64_t piece;   /* and how many each has */
    int64_t line;    /* of columns: outputs that are neighbours in x, a row of them */
    int32_t stage;   /* K_REDUCE_PIECES, ... */
    int32_t form;    /* K_REDUCE_RUNS, ... */
    int32_t finish;  /* K_REDUCE_MEAN, ... */
    int32_t width;   /* lanes that share a part; of columns: lanes that are side by side */
    int32_t packed;  /* of columns: all packs of 16 bytes lie in a row and are aligned */
    int32_t unused;
    k_layout kept;    /* view 0: where the first element of an output lies in x */
    k_layout dropped; /* view 0: steps from there */
} mp_reduce_args;

#endif
