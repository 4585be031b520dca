/* walk_args.h - an output and how the tensors that it is made of are repeated along it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_WALK_ARGS_H
#define MP_KERNEL_WALK_ARGS_H

#include "kernel/core/index_args.h"

enum { K_WALK_VIEWS = 3, K_WALK_LEVELS = K_RANK_MAX - 1 };

/* A dimension outside of the innermost one. */
typedef struct k_walk_level {
    uint32_t dim;
    uint32_t stride[K_WALK_VIEWS]; /* in elements; 0 repeats */
    k_divider divider;
} k_walk_level;

/* An output that is contiguous and has less than 2^31 elements; its inputs are the views. Along the
 * innermost dimension each of them is contiguous or one element. */
typedef struct k_walk {
    int64_t count;
    uint32_t length; /* of the innermost dimension */
    k_divider by_length;
    uint32_t whole;    /* bit v: view v is as large as the output */
    uint32_t repeated; /* bit v: view v is one element along the innermost dimension */
    int32_t levels;
    k_walk_level level[K_WALK_LEVELS]; /* the innermost of them first */
} k_walk;

#endif
