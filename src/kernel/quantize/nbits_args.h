/* nbits_args.h - weights of 2, 4 or 8 bits in blocks that share a scale.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_ARGS_H
#define MP_KERNEL_NBITS_ARGS_H

#include "kernel/core/index_args.h"

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
