/* quantize.c - QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/quantize_express.h"
#include "op/quantize/quantize_steps.h"

/* ---- Quantize- and DequantizeLinear ---- */

/* Input 0 by the scale and the zero point in inputs 1 and 2. */
static mp_status convert(mp_planner *p, bool back, mp_dtype narrow, mp_dtype wide, bool saturate) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *zero = mp_plan_in(p, 2);
    const mp_conversion c = {.back = back,
                             .narrow = narrow,
                             .wide = wide,
                             .scale_type = p->in[1].type,
                             .x = MP_IN(0),
                             .scale = MP_IN(1),
                             .zero = zero != NULL ? MP_IN(2) : MP_NOWHERE,
                             .out = MP_OUT(0),
                             .count = mp_shape_count(&x->shape)};
    k_scales scales;
    MP_TRY(mp_scales_read(p, &p->in[1], zero, &x->shape, &scales));
    return mp_plan_convert(p, &c, &scales, saturate);
}

/* The attribute output_dtype, or `fallback` where it is 0 or absent. */
static mp_status asked_type(const mp_planner *p, mp_dtype fallback, mp_dtype *out) {
    const int64_t asked = mp_node_int(p->node, "output_dtype", 0);
    *out = asked != 0 ? mp_dtype_of_onnx(asked) : fallback;
    return *out != MP_NONE
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "output_dtype is ONNX's element type %lld", (long long)asked);
}

static mp_status plan_quantize(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *zero = mp_plan_in(p, 2);
    const mp_dtypes results = MP_BIT(MP_I8) | MP_BIT(MP_U8) | MP_BIT(MP_I16) | MP_BIT(MP_U16) |
                              (MP_NARROW & ~MP_BIT(MP_F8E8M0));
    mp_dtype to = MP_NONE;
    MP_TRY(asked_type(p, zero != NULL ? zero->type : MP_U8, &to));
    if ((MP_BIT(to) & results) == 0 || (zero != NULL && zero->type != to)) {
        return MP_FAIL(INVALID_ARGUMENT, "values of %s cannot be quantised with a zero point of %s",
                       mp_dtype_name(to), zero != NULL ? mp_dtype_name(zero->type) : "no type");
    }
    MP_TRY(mp_plan_output(p, 0, to, &x->shape));
    return convert(p, false, to, x->type, mp_node_int(p->node, "saturate", 1) != 0);
}

static mp_status plan_dequantize(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_dtypes results = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16);
    mp_dtype to = MP_NONE;
    MP_TRY(asked_type(p, p->in[1].type, &to));
    if ((MP_BIT(to) & results) == 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s is not a type that values are dequantised to; "
                       "output_dtype names float, float16 or bfloat16",
                       mp_dtype_name(to));
    }
    MP_TRY(mp_plan_output(p, 0, to, &x->shape));
    return convert(p, true, x->type, to, true);
}

/* ---- DynamicQuantizeLinear ---- */

static mp_status plan_dynamic(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const mp_shape scalar = {.rank = 0};
    MP_TRY(mp_plan_output(p, 0, MP_U8, x));
    MP_TRY(mp_plan_output(p, 1, MP_F32, &scalar));
    MP_TRY(mp_plan_output(p, 2, MP_U8, &scalar));
    const mp_quantized out = {.values = MP_OUT(0),
                              .scale = p->out_count > 1 ? MP_OUT(1) : MP_NOWHERE,
                              .zero = p->out_count > 2 ? MP_OUT(2) : MP_NOWHERE};
    return mp_plan_dynamic_quantize(p, MP_IN(0), mp_shape_count(x), &out);
}

/* ---- the rows ---- */

enum {
    BYTES = MP_BIT(MP_I8) | MP_BIT(MP_U8),
    WORDS = BYTES | MP_BIT(MP_I16) | MP_BIT(MP_U16),
    HALVES = MP_BIT(MP_I4) | MP_BIT(MP_U4),
    STORED = MP_NARROW & ~MP_BIT(MP_F8E8M0), /* also what quantised values are */
    F32 = MP_BIT(MP_F32),
    SCALES = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    ANY_SCALE = SCALES | MP_BIT(MP_F8E8M0),
    WHOLE = MP_BIT(MP_I32),
};

static const mp_attr_def attrs[] = {{"axis", MP_ATTR_INT},
                                    {"block_size", MP_ATTR_INT},
                                    {"output_dtype", MP_ATTR_INT},
                                    {"saturate", MP_ATTR_INT},
                                    {NULL, 0}};

#define ROW(in_domain, op_name, from, to, function, expresser, ...)                        \
    {                                                                                      \
        .domain = (in_domain), .name = (op_name), .since = (from), .until = (to),          \
        .types = {__VA_ARGS__}, .attrs = attrs, .plan = (function), .express = (expresser) \
    }
#define QUANTIZE(from, to, ...) \
    ROW("", "QuantizeLinear", from, to, plan_quantize, mp_express_quantize, __VA_ARGS__)
#define DEQUANTIZE(from, to, ...) \
    ROW("", "DequantizeLinear", from, to, plan_dequantize, mp_express_dequantize, __VA_ARGS__)

static const mp_op ops[] = {
    QUANTIZE(10, 13, {"T1", F32}, {"T2", BYTES}),
    QUANTIZE(19, 21, {"T1", SCALES}, {"T2", WORDS | MP_FLOAT8 | HALVES}),
    QUANTIZE(23, 25, {"T1", SCALES}, {"T2", ANY_SCALE}, {"T3", WORDS | STORED}),
    DEQUANTIZE(10, 13, {"T", BYTES | WHOLE}),
    DEQUANTIZE(19, 21, {"T1", WORDS | WHOLE | MP_FLOAT8 | HALVES}, {"T2", SCALES}),
    DEQUANTIZE(23, 25, {"T1", WORDS | WHOLE | STORED}, {"T2", ANY_SCALE}, {"T3", SCALES}),
    ROW("", "DynamicQuantizeLinear", 11, 11, plan_dynamic, NULL, {"T1", F32},
        {"T2", MP_BIT(MP_U8)}),
    ROW("com.microsoft", "QuantizeLinear", 1, 1, plan_quantize, mp_express_quantize,
        {"T1", F32 | MP_BIT(MP_F16)}, {"T2", WORDS | HALVES}),
    ROW("com.microsoft", "DequantizeLinear", 1, 1, plan_dequantize, mp_express_dequantize,
        {"T1", WORDS | WHOLE | HALVES}, {"T2", F32 | MP_BIT(MP_F16)}),
};

const mp_op_family mp__family_quantize = {"quantize", ops, MP_COUNT_OF(ops)};
