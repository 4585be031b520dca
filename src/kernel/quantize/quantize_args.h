/* quantize_args.h - arguments of products of 8-bit integers and with weights of a few bits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_QUANTIZE_ARGS_H
#define MP_KERNEL_QUANTIZE_ARGS_H

#include "kernel/core/index_args.h"

/* ---- 8-bit integers ---- */

enum {
    K_INTEGER_LANES = 256,
    K_INTEGER_WORDS = 1024, /* of four factors each, that a tile of A or B has */
    K_INTEGER_SIDE = 4,     /* a lane sums this many rows and columns */
};

/* What becomes of the sums. */
enum {
    K_INTEGER_I32,
    K_INTEGER_F32,  /* times the scales, plus a bias in float for each column */
    K_INTEGER_F16,  /* the same */
    K_INTEGER_BYTE, /* plus an int32 bias for each row, times the scales, rounded, kept in range */
};

/* One value for all, or for each row (of A) or column (of B), again for each matrix or not. */
typedef struct k_integer_side {
    const void *zero, *scale; /* NULL: 0; unused */
    int64_t zero_step, zero_batch;
    int64_t scale_step, scale_batch;
    uint32_t flip; /* 0x80808080 where elements are uint8, which turns them into int8 less 128 */
    int32_t words; /* rows can be read four elements at a time */
} k_integer_side;

/* Where the element of a matrix B lies that an image becomes: rows are channels and places in the
 * window, columns are places of the window. Three dimensions, the first ones of one where there are
 * fewer; rows, columns and positions with padding are below 2^31. */
typedef struct k_integer_window {
    int32_t in[3], kernel[3], out[3], stride[3], dilation[3], pad[3];
    k_divider by_kernel[3], by_out[3];
    int64_t channels, channel; /* of a group; elements of one */
} k_integer_window;

/* out[m,n] of each matrix of `batch` (view 0: A, view 1: B, counted in matrices). */
typedef struct mp_integer_args {
    const void *a, *b, *bias, *out_scale, *out_zero;
    void *out;
    int64_t m, n, k;
    int64_t tiles, tiles_down, tiles_across;
    int64_t bias_batch;
    int32_t kind;
    int32_t scale_type; /* K_SCALE_... */
    uint32_t out_flip;  /* of K_INTEGER_BYTE: 0x80 where the result is uint8 */
    int32_t unused;
    k_integer_side side[2]; /* of A, of B */
    k_layout batch;
    k_integer_window window;
} mp_integer_args;

/* ---- weights of 2, 4 or 8 bits in blocks that share a scale ---- */

enum {
    K_NBITS_PIECE = 8,   /* weights that a lane reads at once; a divisor of every block */
    K_NBITS_COLUMNS = 2, /* columns of the result that a group of lanes works on together */
    K_NBITS_ROWS = 4,    /* rows that one reading of the weights serves */
};

/* A row of weights for each of n columns: `blocks` blocks of `block` weights, of which the last may
 * go beyond k. Zero points are packed like the weights, one row of `zero_row` bytes a column, or of
 * A's type. */
typedef struct k_nbits {
    const void *weight, *scale, *zero, *group;
    int64_t n, k, blocks;
    int64_t weight_row, zero_row; /* bytes */
    int32_t bits, block_shift;    /* block == 1 << block_shift */
    int32_t middle;               /* the zero point where none is given */
    int32_t zero_packed;
    int32_t aligned; /* rows of weights, of A and of the result can be read in pieces */
    int32_t unused;
} k_nbits;

/* out[m][n] = A[m][k] . weights, plus the bias of column n. */
typedef struct mp_nbits_args {
    const void *a, *bias;
    void *out;
    int64_t m;
    k_nbits w;
} mp_nbits_args;

#endif
