/* softmax.c - operators along rows whose result depends on the row alone: Softmax, LogSoftmax,
 * BiasSoftmax, LpNormalization.
 * Kernels: rows/lp_norm.cu, rows/lp_norm_apart.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/row_args.h"
#include "op/core/families.h"
#include "op/core/row_grid.h"
#include "op/core/row_shape.h"
#include "op/fused/expression.h"
#include "op/rows/softmax_steps.h"

#include <string.h>

/* ---- Softmax ---- */

static mp_status softmax(mp_planner *p, mp_rows r, mp_bias_rows by) {
    const mp_tensor *x = &p->in[0];
    const mp_softmax_step step = {.word = p->node->op->detail,
                                  .type = x->type,
                                  .rows = r,
                                  .by = by,
                                  .align = p->align,
                                  .x = MP_IN(0),
                                  .bias = MP_IN(1),
                                  .out = MP_OUT(0)};
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_shape_count(&x->shape) > 0 ? mp_plan_softmax(p, &step) : MP_OK;
}

/* The dimensions from `axis` on are one row. */
static mp_status read_flat(const mp_planner *p, mp_rows *out) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t asked = mp_node_int(p->node, "axis", 1);
    int axis = x->rank;
    if (asked != x->rank) {
        MP_TRY(mp_shape_axis(asked, x->rank, "axis", &axis));
    }
    *out = (mp_rows){
        .rows = mp_shape_span(x, 0, axis), .columns = mp_shape_span(x, axis, x->rank), .inner = 1};
    return MP_OK;
}

/* As it is up to version 12. */
static mp_status plan_softmax_flat(mp_planner *p) {
    mp_rows r;
    MP_TRY(read_flat(p, &r));
    return softmax(p, r, (mp_bias_rows){.rows = 0});
}

/* The bias has whole rows, fewer than x: repeated within the batch, or as a whole. */
static mp_status plan_bias_softmax(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape, *bias = &p->in[1].shape;
    const bool inner = mp_node_int(p->node, "is_inner_broadcast", 0) != 0;
    mp_rows r;
    MP_TRY(read_flat(p, &r));
    const int64_t count = mp_shape_count(bias);
    if (mp_shape_count(x) == 0) {
        return mp_plan_output(p, 0, p->in[0].type, x);
    }
    if (count == 0 || count % r.columns != 0 || r.rows % (count / r.columns) != 0) {
        char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "bias of shape %s cannot be repeated along the %lld rows of %lld elements "
                       "of data of shape %s",
                       mp_shape_text(bias, text), (long long)r.rows, (long long)r.columns,
                       mp_shape_text(x, x_text));
    }
    const int64_t rows = count / r.columns;
    return softmax(p, r, (mp_bias_rows){.share = inner ? r.rows / rows : 1, .rows = rows});
}

static mp_status read_axis(const mp_planner *p, int *axis) {
    const mp_shape *x = &p->in[0].shape;
    *axis = 0;
    return x->rank == 0 ? MP_OK
                        : mp_shape_axis(mp_node_int(p->node, "axis", -1), x->rank, "axis", axis);
}

static mp_status plan_softmax_axis(mp_planner *p) {
    int axis = 0;
    MP_TRY(read_axis(p, &axis));
    return softmax(p, mp_rows_along(&p->in[0].shape, axis), (mp_bias_rows){.rows = 0});
}

/* Along the last dimensions, in an expression: as the kernels compute it. */
static int express_rows(mp_expresser *e, int axis) {
    const mp_shape *x = &e->in[0].shape;
    const int none = MP_NO_REGISTER;
    mp_expression *to = e->to;
    if (!mp_express_rows(e, x->rank - axis)) {
        return MP_NO_REGISTER;
    }
    const int in = e->input(e, 0);
    const int largest = mp_expression_reduction(to, MP_ROW_MAX, in);
    const int off = mp_expression_function(to, "sub", in, largest, 0, 0);
    const int power = mp_expression_function(to, "exp", off, none, 0, 0);
    const int sum = mp_expression_reduction(to, MP_ROW_SUM, power);
    return strcmp(e->node->op->detail, "log") != 0
               ? mp_expression_function(to, "div", power, sum, 0, 0)
               : mp_expression_function(to, "sub", off,
                                        mp_expression_function(to, "log", sum, none, 0, 0), 0, 0);
}

static int express_softmax_flat(mp_expresser *e) {
    const int rank = e->in[0].shape.rank;
    const int64_t asked = mp_node_int(e->node, "axis", 1);
    const int64_t axis = asked < 0 ? asked + rank : asked;
    return axis >= 0 && axis < rank ? express_rows(e, (int)axis) : MP_NO_REGISTER;
}

static int express_softmax_axis(mp_expresser *e) {
    const int rank = e->in[0].shape.rank;
    const int64_t axis = mp_node_int(e->node, "axis", -1);
    return axis == -1 || axis == rank - 1 ? express_rows(e, rank - 1) : MP_NO_REGISTER;
}

/* ---- LpNormalization ---- */

/* How the kernel for rows as these calls them. */
static const char *lp_norm_form(const mp_planner *p, mp_dtype type, const mp_lp_norm_args *args) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(type);
    if (args->inner > 1) {
        return "apart";
    }
    return p->align >= 16 && args->columns % pack == 0 &&
                   args->columns <= mp_row_keep(type) * args->width
               ? "packed"
               : "edged";
}

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
    mp_lp_norm_args args = {.rows = r.rows,
                            .columns = r.columns,
                            .inner = r.inner,
                            .p = (int32_t)power,
                            .least = mp_node_float(p->node, "least", 0),
                            .stays = mp_node_attr(p->node, "least") == NULL};
    const mp_kernel *kernel = NULL;
    const mp_grid grid =
        mp_row_grid(p, x->type, r.rows, r.columns, mp_rows_apart(p, r), &args.width);
    MP_TRY(mp_plan_kernel(p, &kernel, "lp_norm_%s_%s", lp_norm_form(p, x->type, &args),
                          mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_lp_norm_args, x, MP_IN(0)),
                     MP_BIND(mp_lp_norm_args, out, MP_OUT(0)));
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def bias_softmax_attrs[] = {
    {"axis", MP_ATTR_INT}, {"is_inner_broadcast", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def lp_norm_attrs[] = {{"axis", MP_ATTR_INT}, {"p", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def own_lp_norm_attrs[] = {
    {"axis", MP_ATTR_INT}, {"least", MP_ATTR_FLOAT}, {"p", MP_ATTR_INT}, {NULL, 0}};

#define SOFTMAX(op_name, word)                                                                  \
    {.domain = "",                                                                              \
     .name = (op_name),                                                                         \
     .since = 1,                                                                                \
     .until = 11,                                                                               \
     .attrs = axis_only,                                                                        \
     .types = {{"T", MP_IEEE_FLOATS}},                                                          \
     .plan = plan_softmax_flat,                                                                 \
     .express_rows = express_softmax_flat,                                                      \
     .detail = (word)},                                                                         \
    {                                                                                           \
        .domain = "", .name = (op_name), .since = 13, .until = 13, .types = {{"T", MP_FLOATS}}, \
        .attrs = axis_only, .plan = plan_softmax_axis, .express_rows = express_softmax_axis,    \
        .detail = (word)                                                                        \
    }

static const mp_op ops[] = {
    SOFTMAX("Softmax", "plain"),
    SOFTMAX("LogSoftmax", "log"),
    {.domain = "com.microsoft",
     .name = "BiasSoftmax",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .attrs = bias_softmax_attrs,
     .plan = plan_bias_softmax,
     .detail = "biased"},
    {.domain = "",
     .name = "LpNormalization",
     .since = 1,
     .until = 22,
     .types = {{"T", MP_FLOATS}},
     .attrs = lp_norm_attrs,
     .plan = plan_lp_norm},
    {.domain = MP_OWN_DOMAIN, /* what the compiler makes of rows over their length */
     .name = "LpNormalization",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = own_lp_norm_attrs,
     .plan = plan_lp_norm},
};

const mp_op_family mp__family_softmax = {"softmax", ops, MP_COUNT_OF(ops)};
