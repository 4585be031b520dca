/* strided_copy.h - copies between two layouts, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_STRIDED_COPY_H
#define MP_OP_STRIDED_COPY_H

#include "op/core/plan.h"

/* One side of a strided copy: where element 0 of the iteration space lies, and the steps from it,
 * in elements. */
typedef struct mp_strided {
    mp_ref ref;
    int64_t offset;
    int64_t stride[MP_RANK_MAX];
} mp_strided;

/* Copies `shape` elements of `size` bytes (1, 2, 4, 8, 16) from `source` to `target`. Runs that are
 * contiguous on both sides move in the largest units that fit. */
mp_status mp_plan_strided_copy(mp_planner *p, const mp_shape *shape, size_t size,
                               const mp_strided *source, const mp_strided *target);

/* The largest unit of up to 16 bytes in which runs of `bytes` bytes at multiples of `bytes` can be
 * moved, given the planner's alignment; a multiple of `size`. */
size_t mp_move_unit(const mp_planner *p, int64_t bytes, size_t size);

#endif
