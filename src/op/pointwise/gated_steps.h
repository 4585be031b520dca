/* gated_steps.h - halves of rows of which one gates the other, as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_GATED_STEPS_H
#define MP_OP_GATED_STEPS_H

#include "op/core/op.h"

/* The attributes `gate` and `alpha`. Fails: INVALID_ARGUMENT for a gate that is not known. */
mp_status mp_gate_read(const mp_planner *p, int32_t *gate, float *alpha);

/* The shape of the result for rows of shape `x`. Fails: INVALID_ARGUMENT where they have no halves.
 */
mp_status mp_gated_shape(const mp_shape *x, mp_shape *out);

/* `shape` is that of the result. */
mp_status mp_plan_gated(mp_planner *p, mp_dtype type, int32_t gate, float alpha, mp_ref x,
                        const mp_shape *shape, mp_ref out);

#endif
