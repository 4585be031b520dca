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

/* Whether rows of this shape may lie so far apart (mp_tensor.pitch): in whole packs of 16 bytes. */
bool mp_fused_takes_apart(const mp_expression *e, const mp_shape *shape, int64_t pitch);

/* The same for an expression without reductions, of one output, where rows lie apart: of each input
 * (NULL: of none), and of the output. Those of inputs are not repeated then; each counts as one
 * that is, and so does the output. Fails: UNSUPPORTED, too, for rows that are not whole packs. */
mp_status mp_plan_fused_apart(mp_planner *p, const mp_expression *e, const mp_operand *in,
                              const int64_t *in_pitch, mp_ref out, int64_t out_pitch,
                              const mp_shape *shape);

#endif
