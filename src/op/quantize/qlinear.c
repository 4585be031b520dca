/* qlinear.c - com.microsoft's operators on quantised tensors: the values are dequantised, treated
 * as floats and quantised again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/quantize/quantize_steps.h"
#include "op/rows/reduce_steps.h"

static const k_scales one_scale = {.shared = K_SCALES_SINGLE};

/* ---- between bytes and floats ---- */

static mp_status check_single(const mp_planner *p, int i) {
    const mp_tensor *tensor = mp_plan_in(p, i);
    return tensor == NULL || mp_shape_count(&tensor->shape) == 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "input %d has %lld values; a scale and a zero point have one each", i,
                         (long long)mp_shape_count(&tensor->shape));
}

/* The scale is input `scale`, the zero point the one after it. */
static mp_status convert(mp_planner *p, bool back, mp_dtype narrow, int scale, mp_ref x, mp_ref out,
                         int64_t count) {
    const mp_conversion c = {.back = back,
                             .narrow = narrow,
                             .wide = MP_F32,
                             .scale_type = MP_F32,
                             .x = x,
                             .scale = MP_IN(scale),
                             .zero =
                                 mp_plan_in(p, scale + 1) != NULL ? MP_IN(scale + 1) : MP_NOWHERE,
                             .out = out,
                             .count = count};
    MP_TRY(check_single(p, scale));
    MP_TRY(check_single(p, scale + 1));
    return mp_plan_convert(p, &c, &one_scale, true);
}

/* Input `i`, whose scale follows it, as floats in scratch memory. */
static mp_status load(mp_planner *p, int i, mp_ref *out) {
    const int64_t count = mp_shape_count(&p->in[i].shape);
    MP_TRY(mp_plan_scratch_of(p, count, MP_F32, out));
    return convert(p, true, p->in[i].type, i + 1, MP_IN(i), *out, count);
}

/* ---- operators ---- */

static mp_status plan_binary(mp_planner *p) {
    enum { A = 0, B = 3, OUT_SCALE = 6 };
    mp_shape shape;
    mp_ref a;
    mp_ref b;
    mp_ref out;
    MP_TRY(mp_shape_broadcast(&p->in[A].shape, &p->in[B].shape, &shape));
    MP_TRY(mp_plan_output(p, 0, p->in[A].type, &shape));
    const int64_t count = mp_shape_count(&shape);
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(load(p, A, &a));
    MP_TRY(load(p, B, &b));
    MP_TRY(mp_plan_scratch_of(p, count, MP_F32, &out));
    MP_TRY(mp_pointwise2(p, p->node->op->detail, MP_F32, (mp_operand){a, &p->in[A].shape},
                         (mp_operand){b, &p->in[B].shape}, out, &shape, 0, 0));
    return convert(p, false, p->in[A].type, OUT_SCALE, out, MP_OUT(0), count);
}

enum { X = 0, OUT_SCALE = 3 }; /* of operators with one input */

static mp_status plan_unary(mp_planner *p) {
    const mp_tensor *x = &p->in[X];
    const int64_t count = mp_shape_count(&x->shape);
    const float alpha = mp_node_float(p->node, "alpha", 0.01f);
    mp_ref values;
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(load(p, X, &values));
    MP_TRY(mp_pointwise1(p, p->node->op->detail, MP_F32, values, values, count, alpha, 0));
    return convert(p, false, x->type, OUT_SCALE, values, MP_OUT(0), count);
}

static mp_status plan_global_mean(mp_planner *p) {
    const mp_tensor *x = &p->in[X];
    const bool last = mp_node_int(p->node, "channels_last", 0) != 0;
    mp_shape shape = x->shape;
    uint32_t axes = 0;
    mp_ref values;
    mp_ref means;
    if (shape.rank < 3) {
        return MP_FAIL(INVALID_ARGUMENT, "an input of rank %d has no spatial dimensions",
                       shape.rank);
    }
    for (int d = last ? 1 : 2; d < (last ? shape.rank - 1 : shape.rank); d++) {
        shape.dim[d] = 1;
        axes |= 1u << d;
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    const int64_t count = mp_shape_count(&shape);
    if (count == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&x->shape) == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "the mean of an empty tensor is not defined");
    }
    MP_TRY(load(p, X, &values));
    MP_TRY(mp_plan_scratch_of(p, count, MP_F32, &means));
    MP_TRY(mp_plan_reduce(p, "mean", MP_F32, values, &x->shape, axes, means));
    return convert(p, false, x->type, OUT_SCALE, means, MP_OUT(0), count);
}

/* ---- tensors side by side ---- */

enum { FIRST = 2, EACH = 3 }; /* of QLinearConcat, behind the result's scale and zero point */

/* The shape of all of them along `axis` of the first. */
static mp_status joined_shape(const mp_planner *p, int axis, mp_shape *shape) {
    *shape = p->in[FIRST].shape;
    for (int i = FIRST + EACH; i < p->in_count; i += EACH) {
        mp_shape other = p->in[i].shape;
        const int64_t added = other.rank == shape->rank ? other.dim[axis] : 0;
        other.dim[axis] = shape->dim[axis];
        if (!mp_shape_equal(&other, shape) ||
            __builtin_add_overflow(shape->dim[axis], added, &shape->dim[axis])) {
            char a[MP_SHAPE_TEXT], b[MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT, "inputs of shape %s and %s differ beside axis %d",
                           mp_shape_text(&p->in[FIRST].shape, a), mp_shape_text(&p->in[i].shape, b),
                           axis);
        }
    }
    return MP_OK;
}

/* Input `i` with the result's scale, at this place in rows of `width` bytes. */
static mp_status put(mp_planner *p, int i, int axis, int64_t column, int64_t width) {
    const mp_shape *shape = &p->in[i].shape;
    const int64_t count = mp_shape_count(shape), rows = mp_shape_span(shape, 0, axis);
    mp_ref values, bytes;
    if (count == 0) {
        return MP_OK;
    }
    const mp_shape flat = {.rank = 2, .dim = {rows, count / rows}};
    MP_TRY(load(p, i, &values));
    MP_TRY(mp_plan_scratch_of(p, count, p->in[i].type, &bytes));
    MP_TRY(convert(p, false, p->in[i].type, 0, values, bytes, count));
    return mp_plan_strided_copy(
        p, &flat, 1, &(mp_strided){.ref = bytes, .stride = {flat.dim[1], 1}},
        &(mp_strided){.ref = MP_OUT(0), .offset = column, .stride = {width, 1}});
}

static mp_status plan_concat(mp_planner *p) {
    mp_shape shape;
    int axis = 0;
    if (p->in_count < FIRST + EACH || (p->in_count - FIRST) % EACH != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%d inputs are not two and three for each tensor",
                       p->in_count);
    }
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), p->in[FIRST].shape.rank, "axis", &axis));
    MP_TRY(joined_shape(p, axis, &shape));
    MP_TRY(mp_plan_output(p, 0, p->in[FIRST].type, &shape));
    int64_t column = 0;
    for (int i = FIRST; i < p->in_count; i += EACH) {
        MP_TRY(put(p, i, axis, column, mp_shape_span(&shape, axis, shape.rank)));
        column += mp_shape_span(&p->in[i].shape, axis, shape.rank);
    }
    return MP_OK;
}

/* ---- the rows ---- */

static const mp_attr_def alpha_only[] = {{"alpha", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def channels_last[] = {{"channels_last", MP_ATTR_INT}, {NULL, 0}};

#define ROW(op_name, function, word, in_attrs)                                                 \
    {                                                                                          \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,                  \
        .types = {{"T", MP_BIT(MP_I8) | MP_BIT(MP_U8)}}, .plan = (function), .detail = (word), \
        .attrs = (in_attrs)                                                                    \
    }

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QLinearConcat",
     .since = 1,
     .until = 1,
     .types = {{"TF", MP_BIT(MP_F32)},
               {"T8", MP_BIT(MP_I8) | MP_BIT(MP_U8)},
               {"TV", MP_BIT(MP_I8) | MP_BIT(MP_U8) | MP_BIT(MP_F32)}},
     .plan = plan_concat,
     .attrs = axis_only},
    ROW("QLinearAdd", plan_binary, "add", NULL),
    ROW("QLinearMul", plan_binary, "mul", NULL),
    ROW("QLinearSigmoid", plan_unary, "sigmoid", NULL),
    ROW("QLinearLeakyRelu", plan_unary, "leaky_relu", alpha_only),
    ROW("QLinearGlobalAveragePool", plan_global_mean, NULL, channels_last),
};

const mp_op_family mp__family_qlinear = {"qlinear", ops, MP_COUNT_OF(ops)};
