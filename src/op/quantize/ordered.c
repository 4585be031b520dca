/* ordered.c - QuantizeWithOrder, DequantizeWithOrder, QOrderedGelu, QOrderedLayerNormalization:
 * int8 matrices in cuBLASLt's orders, element by element or row by row.
 * Kernel: quantize/ordered_norm.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/ordered_steps.h"

/* ---- QuantizeWithOrder and DequantizeWithOrder ---- */

static mp_status plan_convert(mp_planner *p, mp_dtype to) {
    static const int scales[] = {1};
    const mp_tensor *x = &p->in[0];
    const mp_matrices m = mp_matrices_of(&x->shape);
    mp_ordered_args args = mp_ordered_bytes(&m);
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    MP_TRY(mp_order_read(p, "order_input", K_ORDER_ROW, m.rows, m.columns, &args.x_order));
    MP_TRY(mp_order_read(p, "order_output", K_ORDER_ROW, m.rows, m.columns, &args.out_order));
    MP_TRY(mp_plan_output(p, 0, to, &x->shape));
    args.x_bytes = x->type == MP_I8;
    args.out_bytes = to == MP_I8;
    const mp_ref scale = MP_IN(1);
    const mp_reorder c = {.type = args.x_bytes ? to : x->type,
                          .x = MP_IN(0),
                          .x_scale = args.x_bytes ? scale : MP_NOWHERE,
                          .out = MP_OUT(0),
                          .out_scale = args.out_bytes ? scale : MP_NOWHERE};
    return mp_plan_reorder(p, &args, &c);
}

static mp_status plan_quantize(mp_planner *p) {
    return plan_convert(p, MP_I8);
}

static mp_status plan_dequantize(mp_planner *p) {
    const int64_t asked = mp_node_int(p->node, "to", 0);
    const mp_dtype to = mp_dtype_of_onnx(asked);
    return to == MP_F32 || to == MP_F16
               ? plan_convert(p, to)
               : MP_FAIL(INVALID_ARGUMENT,
                         "to is ONNX's element type %lld; float and float16 are "
                         "possible",
                         (long long)asked);
}

/* ---- QOrderedGelu and QOrderedLayerNormalization ---- */

static mp_status plan_gelu(mp_planner *p) {
    static const int scales[] = {1, 2};
    const mp_matrices m = mp_matrices_of(&p->in[0].shape);
    mp_ordered_args args = mp_ordered_bytes(&m);
    const mp_reorder c = {.type = MP_F32,
                          .x = MP_IN(0),
                          .x_scale = MP_IN(1),
                          .out = MP_OUT(0),
                          .out_scale = MP_IN(2)};
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    MP_TRY(mp_order_read(p, "order_X", K_ORDER_ROW, m.rows, m.columns, &args.x_order));
    MP_TRY(mp_order_read(p, "order_Y", args.x_order, m.rows, m.columns, &args.out_order));
    if (args.x_order == args.out_order) { /* what is done to bytes where they are */
        args.x_order = args.out_order = K_ORDER_ROW;
    }
    args.gelu = 1;
    MP_TRY(mp_plan_output(p, 0, MP_I8, &p->in[0].shape));
    return mp_plan_reorder(p, &args, &c);
}

static mp_status check_norm(const mp_planner *p, const mp_matrices *m) {
    const mp_shape *x = &p->in[0].shape;
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->rank, "axis", &axis));
    if (axis != x->rank - 1) {
        return MP_FAIL(UNSUPPORTED, "normalisation from axis %d on; the last one is supported",
                       axis);
    }
    for (int i = 2; i <= 3; i++) {
        const mp_tensor *line = mp_plan_in(p, i);
        if (line != NULL && mp_shape_count(&line->shape) != m->columns) {
            return MP_FAIL(INVALID_ARGUMENT, "input %d has %lld values for rows of %lld", i,
                           (long long)mp_shape_count(&line->shape), (long long)m->columns);
        }
    }
    return MP_OK;
}

static mp_status plan_norm(mp_planner *p) {
    enum { LANES = 128 };
    static const int scales[] = {1, 4};
    const mp_matrices m = mp_matrices_of(&p->in[0].shape);
    mp_ordered_norm_args args = {.matrices = m.count,
                                 .rows = m.rows,
                                 .columns = m.columns,
                                 .epsilon = mp_node_float(p->node, "epsilon", 1e-5F)};
    const mp_kernel *kernel = NULL;
    int32_t out_order = 0;
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    MP_TRY(mp_order_read(p, "order_X", K_ORDER_ROW, m.rows, m.columns, &args.order));
    MP_TRY(mp_order_read(p, "order_Y", K_ORDER_ROW, m.rows, m.columns, &out_order));
    MP_TRY(check_norm(p, &m));
    if (out_order != args.order) {
        return MP_FAIL(UNSUPPORTED, "order_Y is %d and order_X %d; they are the same", out_order,
                       args.order);
    }
    MP_TRY(mp_plan_output(p, 0, MP_I8, &p->in[0].shape));
    if (mp_shape_count(&p->in[0].shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "ordered_norm_%s", mp_dtype_word(p->in[2].type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid_rows(p, m.count * m.rows, LANES), args,
        MP_BIND(mp_ordered_norm_args, x, MP_IN(0)),
        MP_BIND(mp_ordered_norm_args, x_scale, MP_IN(1)),
        MP_BIND(mp_ordered_norm_args, gamma, MP_IN(2)),
        MP_BIND(mp_ordered_norm_args, beta, mp_plan_in(p, 3) != NULL ? MP_IN(3) : MP_NOWHERE),
        MP_BIND(mp_ordered_norm_args, out, MP_OUT(0)),
        MP_BIND(mp_ordered_norm_args, out_scale, MP_IN(4)));
}

/* ---- the rows ---- */

static const mp_attr_def reorder_attrs[] = {
    {"order_input", MP_ATTR_INT}, {"order_output", MP_ATTR_INT}, {"to", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def gelu_attrs[] = {
    {"order_X", MP_ATTR_INT}, {"order_Y", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def norm_attrs[] = {{"axis", MP_ATTR_INT},
                                         {"epsilon", MP_ATTR_FLOAT},
                                         {"order_X", MP_ATTR_INT},
                                         {"order_Y", MP_ATTR_INT},
                                         {NULL, 0}};

enum { FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16), F32 = MP_BIT(MP_F32), BYTE = MP_BIT(MP_I8) };

#define ROW(op_name, function, names, ...)                                                    \
    {                                                                                         \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,                 \
        .types = {{"Q", BYTE}, {"S", F32}, __VA_ARGS__}, .attrs = (names), .plan = (function) \
    }

static const mp_op ops[] = {
    ROW("QuantizeWithOrder", plan_quantize, reorder_attrs, {"F", FLOATS}),
    ROW("DequantizeWithOrder", plan_dequantize, reorder_attrs, {"F", FLOATS}),
    ROW("QOrderedGelu", plan_gelu, gelu_attrs, {NULL, 0}),
    ROW("QOrderedLayerNormalization", plan_norm, norm_attrs, {"F", FLOATS}),
};

const mp_op_family mp__family_ordered = {"ordered", ops, MP_COUNT_OF(ops)};
