/* movement_args.h - arguments of the kernels that move elements.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOVEMENT_ARGS_H
#define MP_KERNEL_MOVEMENT_ARGS_H

#include "kernel/core/index_args.h"

/* A run: the elements that a lane copies at once where it writes in order. */
#define K_COPY_RUN(bytes) ((bytes) < 2 ? 8 : 16 / (bytes))

typedef struct mp_strided_copy_args {
    const void *x; /* already at the first element to read */
    void *out;
    int64_t count;
    int32_t in_order; /* element i of the layout is element i of out */
    int32_t in_runs;  /* that, it is not wide, and its rows have a run at least */
    k_layout layout;  /* view 0 reads x, view 1 writes out */
} mp_strided_copy_args;

/* A lane transposes a square of this many elements a side; its lines have 16 bytes at most. */
#define K_SQUARE_SIDE(bytes) ((bytes) < 4 ? 4 : 16 / (bytes))

/* out[o][c][r] = x[o][r][c]: columns are neighbours in x, rows are neighbours in out. */
typedef struct mp_transpose_args {
    const void *x;
    void *out;
    int64_t rows, columns;
    int64_t row_stride;    /* of x, in elements */
    int64_t column_stride; /* of out */
    int64_t count;         /* of tiles */
    int32_t across, down;  /* a tile has 2^down rows of 2^across squares */
    k_layout tiles;        /* not wide; view 0: x, view 1: out, view 2: its row, 3: its column */
} mp_transpose_args;

/* out[o][j][i] = x[o][indices[j]][i]; a negative index counts from the end. */
typedef struct mp_gather_args {
    const void *x, *indices;
    void *out;
    int64_t count;    /* of out */
    int64_t axis_dim; /* what an index may be at most */
    int64_t inner;    /* of i */
    k_layout layout;  /* of o, j, i; view 0: x at index 0, view 1: indices */
} mp_gather_args;

#endif
