/* integer_args.h - arguments of products of 8-bit integers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_ARGS_H
#define MP_KERNEL_INTEGER_ARGS_H

#include "kernel/core/index_args.h"

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

#endif
