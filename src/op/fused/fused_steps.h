/* fused_steps.h - an expression as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_STEPS_H
#define MP_OP_FUSED_STEPS_H

#include "op/fused/expression.h"
#include "op/pointwise/pointwise_steps.h"

/* Computes the expression over `shape`, to which the inputs broadcast. An output may lie where an
 * input does that is as large and not repeated. Fails: UNSUPPORTED where more than K_WALK_VIEWS
 * inputs are repeated along some dimensions, and for more elements in all than MP_ROW_ELEMENTS_MAX
 * where there are reductions. Inputs and outputs of rows have the shape without a row's extent. */
mp_status mp_plan_fused(mp_planner *p, const mp_expression *e, const mp_operand *in,
                        const mp_ref *out, const mp_shape *shape);

/* The same for an expression without reductions where rows lie apart (mp_tensor.pitch): of each
 * input, and of the output, which is the only one then. Each of those counts as repeated. Fails:
 * UNSUPPORTED, too, for rows of the output that are no whole packs of 16 bytes, or are beyond what
 * kernels count. */
mp_status mp_plan_fused_apart(mp_planner *p, const mp_expression *e, const mp_operand *in,
                              const int64_t *in_pitch, const mp_ref *out, int64_t out_pitch,
                              const mp_shape *shape);

#endif
