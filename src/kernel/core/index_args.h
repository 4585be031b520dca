/* index_args.h - how kernels walk over tensors: by strides, as broadcasting repeats them, in rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEX_ARGS_H
#define MP_KERNEL_INDEX_ARGS_H

#include "kernel/core/types.h"

enum { K_RANK_MAX = 8, K_VIEWS = 4 };

/* Division by a constant: (umulhi(n, multiplier) + n) >> shift, for n below 2^31. */
typedef struct k_divider {
    uint32_t multiplier, shift;
} k_divider;

/* An iteration space and the strides of the tensors walked in it. */
typedef struct k_layout {
    int32_t rank; /* at least 1 */
    int32_t wide; /* the space has 2^31 elements or more: dividers are not used */
    int64_t dim[K_RANK_MAX];
    k_divider divider[K_RANK_MAX];
    int64_t stride[K_VIEWS][K_RANK_MAX]; /* in elements; 0 repeats, negative walks back */
} k_layout;

/* ---- an output and how what it is made of is repeated along it (walk.h) ---- */

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
    int32_t one_row;   /* each view is whole, or the same in all rows */
    int32_t levels;
    k_walk_level level[K_WALK_LEVELS]; /* the innermost of them first */
} k_walk;

/* Packs that a lane of a kernel with stream.h has on its way. */
enum { K_STREAM_AHEAD = 2 };

/* What plans know of kernels with row_lanes.h. */
enum {
    K_ROW_LANES_MAX = 512, /* lanes that share a row */
    K_ROW_KEEP = 32,       /* elements of it that each keeps in registers; a quarter of 64 bits */
};

#endif
