/* argmax_args.h - arguments of argmax.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ARG_ARGS_H
#define MP_KERNEL_ARG_ARGS_H

#include "kernel/rows/sort_key_args.h"

/* The best element seen: the smallest key, then the smallest `tie`. */
typedef struct k_best {
    uint64_t key, tie;
} k_best;

enum { K_ARG_WHOLE, K_ARG_PIECES, K_ARG_MERGE, K_ARG_LANES };

/* Rows as in mp_softmax_args. */
typedef struct mp_arg_args {
    const void *x;
    int64_t *out;
    k_best *partial; /* `pieces` for each row */
    int64_t rows, columns, inner;
    int64_t pieces, piece; /* how many parts of a row, and columns in each */
    uint64_t last;         /* all ones: of equal elements the last; 0: the first */
    k_order order;
    int32_t stage; /* K_ARG_... */
    int32_t unused;
} mp_arg_args;

#endif
