/* activation_steps.h - an activation that is an attribute of another operator, as a step behind it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ACTIVATION_STEPS_H
#define MP_OP_ACTIVATION_STEPS_H

#include "op/core/op.h"

typedef struct mp_activation_choice {
    mp_activation kind; /* for a device */
    const char *word;   /* as in kernel/pointwise/pointwise.def; NULL: none */
    float a, b;
} mp_activation_choice;

/* By ONNX's name of it; NULL or "" is none. `params`: `count` numbers where the activation has
 * some; the rest are ONNX's defaults. Fails: INVALID_ARGUMENT for a name that is not known, or more
 * numbers than it has. */
mp_status mp_activation_read(const char *name, const float *params, size_t count,
                             mp_activation_choice *out);

/* out = activation(out), of `count` elements; nothing for none. */
mp_status mp_plan_activation(mp_planner *p, const mp_activation_choice *activation, mp_dtype type,
                             mp_ref out, int64_t count);

#endif
