/* ordered_args.h - arguments of kernels on matrices in cuBLASLt's orders.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ORDERED_ARGS_H
#define MP_KERNEL_ORDERED_ARGS_H

#include "kernel/core/types.h"

/* As the operators' attributes number them. */
enum {
    K_ORDER_COL,
    K_ORDER_ROW,
    K_ORDER_COL32,
    K_ORDER_COL4_4R2_8C,
    K_ORDER_COL32_2R_4R4,
    K_ORDERS,
};

/* out = f(x * x_scale + add * add_scale) / out_scale in another order; scales that are NULL are 1.
 * Bytes are int8, rounded and kept in range where they are written; others are T. */
typedef struct mp_ordered_args {
    const void *x, *x_scale;
    const void *add, *add_scale; /* int8; NULL for none */
    void *out;
    const void *out_scale;
    int64_t count, rows, columns; /* of all matrices; of one */
    int64_t add_step;             /* from matrix to matrix; 0 for one that serves all */
    int32_t x_order, add_order, out_order;
    int32_t x_bytes, out_bytes;
    int32_t gelu; /* f: by erf; otherwise nothing */
} mp_ordered_args;

/* Rows of int8 normalised: (x - mean) / deviation * gamma + beta, in steps of the scales. */
typedef struct mp_ordered_norm_args {
    const void *x, *x_scale, *gamma, *beta; /* beta: NULL for none */
    void *out;
    const void *out_scale;
    int64_t matrices, rows, columns;
    int32_t order;
    float epsilon;
} mp_ordered_norm_args;

#endif
