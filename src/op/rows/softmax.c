/* softmax.c - operators along rows whose result depends on the row alone: Softmax, LogSoftmax,
 * LpNormalization.
 * Kernels: rows/lp_norm.cu, rows/softmax.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/row_args.h"
#include "op/core/families.h"
#include "op/core/row_grid.h"
#include "op/core/row_shape.h"

/* Whether to give each row one lane: rows are neighbours in memory, and enough of them to fill the
 * device. */
static bool rows_apart(const mp_planner *p, mp_rows r) {
    return r.inner >= 8 && r.rows >= (int64_t)p->device->info.multiprocessors * 64;
}

/* ---- Softmax ---- */

static mp_status softmax(mp_planner *p, mp_rows r) {
    const mp_tensor *x = &p->in[0];
    const int64_t pack = 16 / (int64_t)mp_dtype_size(x->type);
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    mp_softmax_args args = {.rows = r.rows,
                            .columns = r.columns,
                            .inner = r.inner,
                            .packed = r.inner == 1 && p->align >= 16 && r.columns % pack == 0};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "softmax_%s_%s", (const char *)p->node->op->detail,
                          mp_dtype_word(x->type)));
    const mp_grid grid = mp_row_grid(p, x->type, r.rows, r.columns, rows_apart(p, r), &args.width);
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_softmax_args, x, MP_IN(0)),
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
    return softmax(p, (mp_rows){.rows = mp_shape_span(x, 0, axis),
                                .columns = mp_shape_span(x, axis, x->rank),
                                .inner = 1});
}

static mp_status read_axis(const mp_planner *p, int *axis) {
    const mp_shape *x = &p->in[0].shape;
    *axis = 0;
    return x->rank == 0 ? MP_OK
                        : mp_shape_axis(mp_node_int(p->node, "axis", -1), x->rank, "axis", axis);
}

static mp_status plan_softmax(mp_planner *p) {
    int axis = 0;
    MP_TRY(read_axis(p, &axis));
    return softmax(p, mp_rows_along(&p->in[0].shape, axis));
}

/* ---- LpNormalization ---- */

static mp_status plan_lp_norm(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int64_t power = mp_node_int(p->node, "p", 2);
    int axis = 0;
    MP_TRY(read_axis(p, &axis));
    if (power != 1 && power != 2) {
        return MP_FAIL(INVALID_ARGUMENT, "p is %lld; 1 and 2 are possible", (long long)power);
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const mp_rows r = mp_rows_along(&x->shape, axis);
    mp_lp_norm_args args = {
        .rows = r.rows, .columns = r.columns, .inner = r.inner, .p = (int32_t)power};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "lp_norm_%s", mp_dtype_word(x->type)));
    const mp_grid grid = mp_row_grid(p, x->type, r.rows, r.columns, rows_apart(p, r), &args.width);
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_lp_norm_args, x, MP_IN(0)),
                     MP_BIND(mp_lp_norm_args, out, MP_OUT(0)));
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def lp_norm_attrs[] = {{"axis", MP_ATTR_INT}, {"p", MP_ATTR_INT}, {NULL, 0}};

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
     .name = "LpNormalization",
     .since = 1,
     .until = 22,
     .types = {{"T", MP_FLOATS}},
     .attrs = lp_norm_attrs,
     .plan = plan_lp_norm},
};

const mp_op_family mp__family_softmax = {"softmax", ops, MP_COUNT_OF(ops)};
