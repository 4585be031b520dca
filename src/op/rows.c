/* rows.c - operators that normalise rows: Softmax, LogSoftmax, LayerNormalization.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce_args.h"
#include "op/families.h"

/* Lanes that share a row: each should have a few elements, and a row fits one block. */
static uint32_t lanes_for(int64_t columns) {
    uint32_t lanes = 32;
    while (lanes < 1024 && (int64_t)lanes * 4 < columns) {
        lanes *= 2;
    }
    return lanes;
}

/* ---- Softmax ---- */

static mp_status softmax(mp_planner *p, mp_softmax_args args) {
    const mp_tensor *x = &p->in[0];
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "softmax_%s_%s", (const char *)p->node->op->detail,
                          mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, args.rows, lanes_for(args.columns)), args,
                     MP_BIND(mp_softmax_args, x, MP_IN(0)),
                     MP_BIND(mp_softmax_args, out, MP_OUT(0)));
}

/* Up to version 12 the dimensions from `axis` on are one row. */
static mp_status plan_softmax_flat(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t asked = mp_node_int(p->node, "axis", 1);
    int axis = x->rank;
    if (asked != x->rank) {
        MP_TRY(mp_shape_axis(asked, x->rank, "axis", &axis));
    }
    return softmax(p, (mp_softmax_args){.rows = mp_shape_span(x, 0, axis),
                                        .columns = mp_shape_span(x, axis, x->rank),
                                        .inner = 1});
}

static mp_status plan_softmax(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    int axis = 0;
    if (x->rank == 0) {
        return softmax(p, (mp_softmax_args){.rows = 1, .columns = 1, .inner = 1});
    }
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->rank, "axis", &axis));
    const int64_t inner = mp_shape_span(x, axis + 1, x->rank);
    return softmax(p, (mp_softmax_args){.rows = mp_shape_span(x, 0, axis) * inner,
                                        .columns = x->dim[axis],
                                        .inner = inner});
}

/* ---- LayerNormalization ---- */

static mp_status check_vector(const mp_planner *p, int i, const char *name, int64_t columns) {
    const mp_tensor *vector = mp_plan_in(p, i);
    char text[192];
    return vector == NULL || mp_shape_count(&vector->shape) == columns
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "%s of shape %s for rows of %lld elements", name,
                         mp_shape_text(&vector->shape, text), (long long)columns);
}

static mp_status plan_layer_norm(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->shape.rank, "axis", &axis));
    const mp_layer_norm_args args = {
        .rows = mp_shape_span(&x->shape, 0, axis),
        .columns = mp_shape_span(&x->shape, axis, x->shape.rank),
        .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
    };
    mp_shape statistics = x->shape;
    for (int d = axis; d < statistics.rank; d++) {
        statistics.dim[d] = 1;
    }
    MP_TRY(check_vector(p, 1, "Scale", args.columns));
    MP_TRY(check_vector(p, 2, "B", args.columns));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, MP_F32, &statistics));
    MP_TRY(mp_plan_output(p, 2, MP_F32, &statistics));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "layer_norm_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid_rows(p, args.rows, lanes_for(args.columns)), args,
        MP_BIND(mp_layer_norm_args, x, MP_IN(0)), MP_BIND(mp_layer_norm_args, scale, MP_IN(1)),
        MP_BIND(mp_layer_norm_args, bias, mp_plan_in(p, 2) != NULL ? MP_IN(2) : MP_NOWHERE),
        MP_BIND(mp_layer_norm_args, out, MP_OUT(0)),
        MP_BIND(mp_layer_norm_args, mean, p->out_count > 1 ? MP_OUT(1) : MP_NOWHERE),
        MP_BIND(mp_layer_norm_args, inverse, p->out_count > 2 ? MP_OUT(2) : MP_NOWHERE));
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def layer_norm_attrs[] = {
    {"axis", MP_ATTR_INT}, {"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};

#define SOFTMAX(op_name, word)                                                                  \
    {.domain = "",                                                                              \
     .name = (op_name),                                                                         \
     .since = 1,                                                                                \
     .until = 11,                                                                               \
     .attrs = axis_only,                                                                        \
     .types = {{"T", MP_IEEE_FLOATS}},                                                          \
     .plan = plan_softmax_flat,                                                                 \
     .detail = (word)},                                                                         \
    {                                                                                           \
        .domain = "", .name = (op_name), .since = 13, .until = 13, .types = {{"T", MP_FLOATS}}, \
        .attrs = axis_only, .plan = plan_softmax, .detail = (word)                              \
    }

static const mp_op ops[] = {
    SOFTMAX("Softmax", "plain"),
    SOFTMAX("LogSoftmax", "log"),
    {.domain = "",
     .name = "LayerNormalization",
     .since = 17,
     .until = 17,
     .types = {{"T", MP_FLOATS}, {"U", MP_BIT(MP_F32)}},
     .attrs = layer_norm_attrs,
     .plan = plan_layer_norm},
};

const mp_op_family mp__family_rows = {"rows", ops, MP_COUNT_OF(ops)};
