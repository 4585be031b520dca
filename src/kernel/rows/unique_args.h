/* unique_args.h - arguments of the kernels that find different slices.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_UNIQUE_ARGS_H
#define MP_KERNEL_UNIQUE_ARGS_H

#include "kernel/rows/topk_args.h"

enum { K_UNIQUE_STEP, K_UNIQUE_FLAGS };

/* Element j of slice s is x[(j / inner * slices + s) * inner + j % inner]. Slices are compared
 * element by element. STEP is one step of a bitonic network over `padded` pairs, whose indices are
 * slices or, behind the last, -1; FLAGS marks each slice that differs from the one before it. */
typedef struct mp_unique_args {
    const void *x;
    k_pair *pairs;
    uint8_t *flags;
    int64_t slices, length, inner, padded;
    int64_t run, step;
    k_order order;
    int32_t stage;
    int32_t unused;
} mp_unique_args;

enum { K_UNIQUE_START, K_UNIQUE_MARK, K_UNIQUE_WRITE };

/* Group g has the sorted pairs from heads[g] on; its first slice is the index of that pair. */
typedef struct mp_unique_write_args {
    k_pair *pairs;
    const int64_t *heads;
    const int64_t *first; /* the groups' first slices in order; NULL: groups stay sorted */
    uint8_t *marks;       /* MARK: set at each group's first slice */
    int64_t *places;      /* the first slice of each group of the output */
    int64_t *indices, *inverse, *counts; /* may be NULL */
    int64_t slices, groups;
    int32_t stage;
    int32_t unused;
} mp_unique_write_args;

#endif
