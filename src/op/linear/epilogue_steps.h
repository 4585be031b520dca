/* epilogue_steps.h - what is done to a convolution's result before it is stored.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_EPILOGUE_STEPS_H
#define MP_OP_EPILOGUE_STEPS_H

#include "op/core/op.h"
#include "op/pointwise/pointwise_steps.h"

/* Reads the attributes `activation`, `activation_params` and `residual_behind`, and whether there
 * is a fourth input, into `conv`. Fails: INVALID_ARGUMENT for an activation that is not known, or
 * lacks parameters. */
mp_status mp_epilogue_read(const mp_planner *p, mp_conv *conv);

/* Steps of their own for what `conv` says: out = activation(y + bias + input 3), or input 3 behind
 * the activation, of this shape. `y` may be the output; a bias without a shape is none. `pitch`: of
 * the output's rows, and of those of `y` where that is the same. */
mp_status mp_epilogue_steps(mp_planner *p, const mp_conv *conv, mp_operand y, mp_operand bias,
                            mp_ref out, int64_t pitch, const mp_shape *shape);

#endif
