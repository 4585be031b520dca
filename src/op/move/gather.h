/* gather.h - slices along an axis, picked by indices, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_GATHER_H
#define MP_OP_GATHER_H

#include "op/core/plan.h"

/* The shape of what indices pick along `axis` of x. Fails: UNSUPPORTED for too many dimensions. */
mp_status mp_gather_shape(const mp_shape *x, const mp_shape *indices, int axis, mp_shape *out);

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

#endif
