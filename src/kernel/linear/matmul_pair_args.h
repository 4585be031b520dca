/* matmul_pair_args.h - arguments of matmul_pair.cu, and what a block holds in shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MATMUL_PAIR_ARGS_H
#define MP_KERNEL_MATMUL_PAIR_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_PAIR_LANES = 256,
    K_PAIR_SLICE = 128,     /* bytes along k of a stage, ... */
    K_PAIR_LINE = 128 + 16, /* ... and of a line of one: eight lines begin in different banks */
    K_PAIR_STEP = 64,       /* bytes along k that are multiplied at once; lines are zeros behind */
    K_PAIR_STAGES = 3,
    K_PAIR_INNER_MAX = 96, /* columns between the products that a block makes at a time */
    K_PAIR_SPLITS_MAX = 8, /* blocks of the same rows */
    K_PAIR_UNIT = 4,       /* results that a lane finishes at once */
};

/* Columns of the result, at most: sums of a lane. */
#define K_PAIR_OUTER_MAX(rows) ((rows) > 32 ? 192 : 256)

/* Bytes from one row to the next in shared memory, of so many that are multiplied; floats from one
 * row of sums to the next. */
#define K_PAIR_PITCH(bytes)       (((bytes) + K_PAIR_STEP - 1) / K_PAIR_STEP * K_PAIR_STEP + 16)
#define K_PAIR_SUM_PITCH(columns) ((columns) + 8)

/* Columns of whole parts. */
#define K_PAIR_ROOM(share, part) (((share) + (part)-1) / (part) * (part))

/* out = (activation(x w1' + b1) w2' + b2) * scale + residual, of matrices as they lie. What is NULL
 * is left out. */
typedef struct mp_pair_args {
    const void *x;        /* [rows, from] */
    const void *w1, *b1;  /* [inner, from], [inner] */
    const void *w2, *b2;  /* [to, inner], [to] */
    const void *scale;    /* [to] */
    const void *residual; /* [rows, to] */
    void *out;            /* [rows, to] */
    int32_t rows, from, inner, to;
    int32_t share; /* columns between the products that each block of a cluster makes, */
    int32_t part;  /* ... and of those at a time */
    int32_t splits_log;
    int32_t at_inner, at_ring, stage; /* bytes of shared memory: where what is between lies, and the
                                       * ring; of a stage */
    int32_t at_rows;                  /* floats: biases and scale */
    int32_t at_given, at_box; /* the same: what blocks of the cluster give, and a box for it */
    int32_t constant;         /* weights and biases are, and may be read before the kernel before
                               * ends */
    int32_t activation;       /* K_ACTIVATE_... */
    float alpha, beta;        /* of the activation */
    k_divider by_units;       /* K_PAIR_UNIT columns of the result each */
} mp_pair_args;

#endif
