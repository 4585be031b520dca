/* delta_steps.h - linear attention as a step, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DELTA_STEPS_H
#define MP_OP_DELTA_STEPS_H

#include "kernel/recurrent/delta_args.h"
#include "op/core/op.h"

/* Of `args` the caller sets what follows from shapes and attributes; sizes of shared memory and
 * lanes are the step's. */
typedef struct mp_delta {
    mp_delta_args args;
    mp_dtype type, state_type; /* of the tokens and of the states */
    mp_ref q, k, v, past, decay, beta, log_rate, bias, starts, counts;
    mp_ref out, present, update;
} mp_delta;

/* Sets `decays` (1 where there are any) and `retrieves` by the attribute update_rule. */
mp_status mp_delta_rule(const mp_planner *p, mp_delta_args *args);

/* `scale`, or 1 / sqrt(size) where it is 0. */
float mp_delta_scale(const mp_planner *p, int64_t size);

/* Fails: UNSUPPORTED for heads that no lanes hold. */
mp_status mp_plan_delta(mp_planner *p, mp_delta *d);

#endif
