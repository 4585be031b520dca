/* norm_steps.h - rows brought to mean 0 and deviation 1, as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NORM_STEPS_H
#define MP_OP_NORM_STEPS_H

#include "kernel/rows/row_args.h"
#include "op/core/plan.h"

/* `args` has the sizes; its pointers are the references here, MP_NOWHERE for those that are not
 * wanted. The lanes, and a `skip_rows` of 0, are settled by the step. With `found` there is neither
 * skip nor add, and all is of one type. With `args.scales` there are both, of which skip has as
 * many rows as x, and `add` is one row. */
typedef struct mp_norm {
    mp_norm_args args;
    mp_dtype type, out_type; /* of x; of the result, the scale and the bias */
    mp_ref x, skip, add, found, scale, bias, out, mean, inverse, sum;
} mp_norm;

/* The result may lie where x does. */
mp_status mp_plan_norm(mp_planner *p, mp_norm *norm);

#endif
