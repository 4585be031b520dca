/* column_sum_steps.h - sums over the rows of matrices, as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_COLUMN_SUM_STEPS_H
#define MP_OP_COLUMN_SUM_STEPS_H

#include "op/core/plan.h"

/* x[outer][rows][line] to out[outer][line]. */
typedef struct mp_column_sum {
    mp_dtype type;
    bool mean; /* not the sum */
    int64_t outer, rows, line;
    mp_ref x, out;
} mp_column_sum;

/* Whether the kernel does it, and better than that of other reductions. */
bool mp_column_sum_takes(const mp_planner *p, const mp_column_sum *sum);

mp_status mp_plan_column_sum(mp_planner *p, const mp_column_sum *sum);

#endif
