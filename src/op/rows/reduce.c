/* reduce.c - the Reduce operators and the global pools.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/fused/expression.h"
#include "op/rows/reduce_steps.h"

#include <string.h>

static mp_shape shape_without(const mp_shape *x, uint32_t axes, bool keep) {
    mp_shape shape = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        const bool dropped = (axes & 1u << d) != 0;
        if (!dropped || keep) {
            shape.dim[shape.rank++] = dropped ? 1 : x->dim[d];
        }
    }
    return shape;
}

/* Whether one element, reduced, is itself. */
static bool keeps_single(const char *word) {
    static const char *const words[] = {"sum", "mean", "max", "min", "prod"};
    for (size_t i = 0; i < MP_COUNT_OF(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Over dimensions of 1 it is a copy, which an island leaves out. */
static mp_status reduce(mp_planner *p, uint32_t axes, const mp_shape *shape) {
    const char *word = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    size_t bytes = 0;
    if (!keeps_single(word) || mp_shape_count(&x->shape) != mp_shape_count(shape)) {
        return mp_plan_reduce(p, word, x->type, MP_IN(0), &x->shape, axes, MP_OUT(0));
    }
    MP_TRY(mp_shape_bytes(shape, x->type, &bytes));
    return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
}

static mp_status plan_reduce(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    uint32_t axes = 0;
    int count = 0;
    MP_TRY(mp_listed_axes(p, "axes", 1, x->shape.rank, &axes, &count));
    const bool nothing_to_do = count <= 0 && mp_node_flag(p->node, "noop_with_empty_axes", false);
    if (count <= 0 && !nothing_to_do) {
        axes = (1u << x->shape.rank) - 1;
    }
    const mp_shape shape = shape_without(&x->shape, axes, mp_node_flag(p->node, "keepdims", true));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return reduce(p, axes, &shape);
}

static mp_status plan_global_pool(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    if (x->shape.rank < 3) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has no spatial dimensions",
                       mp_shape_text(&x->shape, text));
    }
    const uint32_t all = (1u << x->shape.rank) - 1;
    const uint32_t axes = mp_channels_last(p) ? all >> 1 & ~1u : all & ~3u;
    const mp_shape shape = shape_without(&x->shape, axes, true);
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return reduce(p, axes, &shape);
}

/* ---- in expressions ---- */

/* The axes that a node names, where they are known; *count as mp_listed_axes gives it. */
static bool known_axes(const mp_expresser *e, uint32_t *mask, int *count) {
    const mp_attr *attr = mp_node_attr(e->node, "axes");
    const mp_tensor *in = e->in_count > 1 && e->in[1].type != MP_NONE ? &e->in[1] : NULL;
    const int64_t *list = attr != NULL && attr->kind == MP_ATTR_INTS ? attr->ints : NULL;
    int64_t length = list != NULL ? (int64_t)attr->count : 0;
    if (list == NULL && in != NULL) {
        length = mp_shape_count(&in->shape);
        list = (const int64_t *)(uintptr_t)in->data;
        if (in->type != MP_I64 || in->shape.rank > 1 || (list == NULL && length > 0)) {
            return false;
        }
    }
    const int rank = e->in[0].shape.rank;
    *mask = 0;
    *count = (int)MP_MIN(length, MP_RANK_MAX + 1);
    for (int64_t i = 0; i < length; i++) {
        const int64_t axis = list[i] < 0 ? list[i] + rank : list[i];
        if (axis < 0 || axis >= rank || (*mask & 1u << axis) != 0) {
            return false; /* the plan says what is wrong */
        }
        *mask |= 1u << axis;
    }
    return true;
}

/* How many of the last dimensions the node reduces; 0 where it reduces others, or none. */
static int row_dims(const mp_expresser *e) {
    const int rank = e->in[0].shape.rank;
    uint32_t mask = 0;
    int count = 0;
    if (!known_axes(e, &mask, &count)) {
        return 0;
    }
    if (count == 0) {
        return mp_node_flag(e->node, "noop_with_empty_axes", false) ? 0 : rank;
    }
    return mask == ((1u << count) - 1) << (rank - count) ? count : 0;
}

/* log(sum(exp(x - base))) + base; the base is the largest element where that is a number. */
static int log_sum_exp(mp_expression *e, int x) {
    const int none = MP_NO_REGISTER;
    const int largest = mp_expression_reduction(e, MP_ROW_MAX, x);
    const int odd = mp_expression_function(
        e, "isnan", mp_expression_function(e, "sub", largest, largest, 0, 0), none, 0, 0);
    const int base = mp_expression_where(e, odd, mp_expression_zero(e, largest), largest);
    const int off = mp_expression_function(e, "sub", x, base, 0, 0);
    const int power = mp_expression_function(e, "exp", off, none, 0, 0);
    const int sum = mp_expression_reduction(e, MP_ROW_SUM, power);
    const int log = mp_expression_function(e, "log", sum, none, 0, 0);
    return mp_expression_function(e, "add", log, base, 0, 0);
}

static int express_reduce(mp_expresser *e) {
    static const struct {
        const char *word, *before, *behind;
        mp_reduction reduction;
    } kinds[] = {
        {"sum", NULL, NULL, MP_ROW_SUM},      {"mean", NULL, NULL, MP_ROW_MEAN},
        {"max", NULL, NULL, MP_ROW_MAX},      {"min", NULL, NULL, MP_ROW_MIN},
        {"prod", NULL, NULL, MP_ROW_PRODUCT}, {"l1", "abs", NULL, MP_ROW_SUM},
        {"sumsq", "mul", NULL, MP_ROW_SUM},   {"l2", "mul", "sqrt", MP_ROW_SUM},
        {"logsum", NULL, "log", MP_ROW_SUM},
    };
    const int dims = row_dims(e);
    if ((MP_BIT(e->in[0].type) & MP_FLOATS) == 0 || !mp_express_rows(e, dims)) {
        return MP_NO_REGISTER;
    }
    e->dropped_dims = mp_node_flag(e->node, "keepdims", true) ? 0 : dims;
    int x = e->input(e, 0);
    if (strcmp(e->node->op->detail, "logsumexp") == 0) {
        return log_sum_exp(e->to, x);
    }
    size_t i = 0;
    while (strcmp(kinds[i].word, e->node->op->detail) != 0) {
        i++;
    }
    if (kinds[i].before != NULL) {
        const int y = strcmp(kinds[i].before, "mul") == 0 ? x : MP_NO_REGISTER;
        x = mp_expression_function(e->to, kinds[i].before, x, y, 0, 0);
    }
    x = mp_expression_reduction(e->to, kinds[i].reduction, x);
    return kinds[i].behind != NULL
               ? mp_expression_function(e->to, kinds[i].behind, x, MP_NO_REGISTER, 0, 0)
               : x;
}

/* ---- the rows ---- */

static const mp_attr_def old_attrs[] = {
    {"axes", MP_ATTR_INTS}, {"keepdims", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def new_attrs[] = {
    {"keepdims", MP_ATTR_INT}, {"noop_with_empty_axes", MP_ATTR_INT}, {NULL, 0}};

enum {
    SUMS = MP_FLOATS | 1u << MP_I32 | 1u << MP_I64 | 1u << MP_U32 | 1u << MP_U64,
    EXTREMES = SUMS | 1u << MP_I8 | 1u << MP_U8,
    BF16 = 1u << MP_BF16,
};

/* Axes were an attribute up to schema `old`, and are an input from `first` on. */
#define REDUCE(op_name, set, word, old, first, last)                                            \
    {.domain = "",                                                                              \
     .name = (op_name),                                                                         \
     .since = 1,                                                                                \
     .until = (old),                                                                            \
     .attrs = old_attrs,                                                                        \
     .types = {{"T", (mp_dtypes)((old) < 13 ? (set) & ~BF16 : (set))}},                         \
     .plan = plan_reduce,                                                                       \
     .express_rows = express_reduce,                                                            \
     .detail = (word)},                                                                         \
    {                                                                                           \
        .domain = "", .name = (op_name), .since = (first), .until = (last), .host_in = 1u << 1, \
        .types = {{"T", (set)}}, .attrs = new_attrs, .plan = plan_reduce,                       \
        .express_rows = express_reduce, .detail = (word)                                        \
    }
#define GLOBAL_POOL(op_domain, op_name, word)                                   \
    {                                                                           \
        .domain = (op_domain), .name = (op_name), .since = 1, .until = 22,      \
        .types = {{"T", MP_FLOATS}}, .plan = plan_global_pool, .detail = (word) \
    }

static const mp_op ops[] = {
    REDUCE("ReduceSum", SUMS, "sum", 11, 13, 13),
    REDUCE("ReduceMean", SUMS, "mean", 13, 18, 18),
    REDUCE("ReduceMax", EXTREMES, "max", 13, 18, 20),
    REDUCE("ReduceMin", EXTREMES, "min", 13, 18, 20),
    REDUCE("ReduceProd", SUMS, "prod", 13, 18, 18),
    REDUCE("ReduceL1", SUMS, "l1", 13, 18, 18),
    REDUCE("ReduceL2", SUMS, "l2", 13, 18, 18),
    REDUCE("ReduceSumSquare", SUMS, "sumsq", 13, 18, 18),
    REDUCE("ReduceLogSum", MP_FLOATS, "logsum", 13, 18, 18),
    REDUCE("ReduceLogSumExp", MP_FLOATS, "logsumexp", 13, 18, 18),
    GLOBAL_POOL("", "GlobalAveragePool", "mean"),
    GLOBAL_POOL("", "GlobalMaxPool", "max"),
    GLOBAL_POOL(MP_NHWC_DOMAIN, "GlobalAveragePool", "mean"),
    GLOBAL_POOL(MP_NHWC_DOMAIN, "GlobalMaxPool", "max"),
};

const mp_op_family mp__family_reduce = {"reduce", ops, MP_COUNT_OF(ops)};
