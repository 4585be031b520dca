/* topk_steps.h - the largest or smallest elements of rows, as steps for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_TOPK_STEPS_H
#define MP_OP_TOPK_STEPS_H

#include "kernel/rows/sort_args.h"
#include "op/core/plan.h"
#include "op/core/row_shape.h"

/* The first `k` of each row, of one at least; indices are int64. */
typedef struct mp_topk {
    mp_dtype dtype;
    mp_rows rows; /* of x */
    int64_t k;
    bool sorted; /* otherwise in any order */
    k_order order;
    mp_ref x, values, indices;
} mp_topk;

mp_status mp_plan_topk(mp_planner *p, const mp_topk *t);

#endif
