/* slice.h - steps that move elements, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_MOVEMENT_H
#define MP_OP_MOVEMENT_H

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

/* Picks slices of `shape` along an axis: out[o][j][i] = x[o][indices[j]][i]. An index that is
 * negative counts from the end; one that is out of range reads the nearest slice. */
typedef struct mp_gather {
    mp_ref x;
    mp_dtype type;
    const mp_shape *shape;
    int axis;
    mp_ref indices;
    mp_dtype index_type; /* MP_I32 or MP_I64 */
    int64_t index_count;
    mp_ref out;
} mp_gather;

mp_status mp_plan_gather(mp_planner *p, const mp_gather *gather);

/* The largest unit of up to 16 bytes in which runs of `bytes` bytes at multiples of `bytes` can be
 * moved, given the planner's alignment; a multiple of `size`. */
size_t mp_move_unit(const mp_planner *p, int64_t bytes, size_t size);

#endif
