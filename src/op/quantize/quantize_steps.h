/* quantize_steps.h - quantisation as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_QUANTIZE_STEPS_H
#define MP_OP_QUANTIZE_STEPS_H

#include "op/core/op.h"
#include "op/pointwise/narrow.h"

/* Which scale each element of a tensor of shape `x` has, from the node's attributes axis and
 * block_size. `zero` may be NULL. Fails: INVALID_ARGUMENT. */
mp_status mp_scales_read(const mp_planner *p, const mp_tensor *scale, const mp_tensor *zero,
                         const mp_shape *x, k_scales *out);

/* The kind of scales of that type (K_SCALE_...). */
int32_t mp_scale_word(mp_dtype dtype);

/* Elements of `wide`, a float type, as elements of `narrow`, or back. `zero` may be MP_NOWHERE. */
typedef struct mp_conversion {
    bool back;
    mp_dtype narrow, wide, scale_type;
    mp_ref x, scale, zero, out;
    int64_t count;
} mp_conversion;

mp_status mp_plan_convert(mp_planner *p, const mp_conversion *c, const k_scales *scales,
                          bool saturate);

/* Where a tensor quantised to uint8 goes; MP_NOWHERE for what nobody needs. */
typedef struct mp_quantized {
    mp_ref values, scale, zero; /* uint8, one float, one uint8 */
} mp_quantized;

/* `count` floats at x as uint8, with the scale and zero point that their range asks for. */
mp_status mp_plan_dynamic_quantize(mp_planner *p, mp_ref x, int64_t count, const mp_quantized *out);

#endif
