/* cast_steps.h - the same values in another element type, as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CAST_STEPS_H
#define MP_OP_CAST_STEPS_H

#include "op/pointwise/narrow.h"

/* A place with elements of a type. */
typedef struct mp_typed {
    mp_dtype type;
    mp_ref ref;
} mp_typed;

/* The elements of a tensor of `shape` at `from` as those of another type at `to`, or as they are.
 */
mp_status mp_plan_cast(mp_planner *p, mp_typed from, mp_typed to, const mp_shape *shape,
                       mp_narrowing how);

#endif
