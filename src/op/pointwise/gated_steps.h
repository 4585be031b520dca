/* gated_steps.h - halves of rows of which one gates the other, as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_GATED_STEPS_H
#define MP_OP_GATED_STEPS_H

#include "op/core/op.h"

/* An activation of one half of a row, by which the other half is multiplied. */
typedef struct mp_gate {
    int32_t kind; /* K_GATE_... */
    float alpha;  /* of K_GATE_SWISH */
    bool last;    /* of the right half; else of the left one */
} mp_gate;

/* The attributes `gate`, `alpha` and `last`, of the gates that all kernels know. Fails:
 * INVALID_ARGUMENT for another. */
mp_status mp_gate_read(const mp_planner *p, mp_gate *out);

/* The shape of the result for rows of shape `x`. Fails: INVALID_ARGUMENT where they have no halves.
 */
mp_status mp_gated_shape(const mp_shape *x, mp_shape *out);

/* `shape` is that of the result. */
mp_status mp_plan_gated(mp_planner *p, mp_dtype type, const mp_gate *gate, mp_ref x,
                        const mp_shape *shape, mp_ref out);

#endif
