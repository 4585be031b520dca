/* norm.c - operators that bring rows to mean 0 and deviation 1, or to deviation 1 alone:
 * LayerNormalization and what differs from it in where the rows and their scales are.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/rows/norm_steps.h"

static mp_ref output_or_nowhere(const mp_planner *p, int i) {
    return i < p->out_count ? MP_OUT(i) : MP_NOWHERE;
}

/* ---- rows of the last dimensions, a scale for each column ---- */

/* What sets an operator of this kind apart. */
typedef struct kind {
    bool centred;
    bool any_sum; /* a passes' row: the sum may be of shapes that broadcast, also of three */
    int bias, mean, inverse; /* which input and outputs; -1 for none */
} kind;

/* A scale or bias for each element of a row. One that is smaller is repeated into scratch memory.
 */
static mp_status vector(mp_planner *p, int i, const char *name, const mp_shape *row, mp_ref *out) {
    const mp_tensor *given = i >= 0 ? mp_plan_in(p, i) : NULL;
    *out = MP_NOWHERE;
    if (given == NULL) {
        return MP_OK;
    }
    mp_shape shape = given->shape, both = {.rank = 0};
    while (shape.rank > row->rank && shape.dim[0] == 1) {
        shape.rank--;
        for (int d = 0; d < shape.rank; d++) {
            shape.dim[d] = shape.dim[d + 1];
        }
    }
    const bool fits = shape.rank <= row->rank && mp_shape_broadcast(&shape, row, &both) == MP_OK &&
                      mp_shape_equal(&both, row);
    if (!fits) {
        char text[MP_SHAPE_TEXT], row_text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED, "%s of shape %s for rows of %s elements", name,
                       mp_shape_text(&given->shape, text), mp_shape_text(row, row_text));
    }
    *out = MP_IN(i);
    if (mp_shape_count(&shape) == mp_shape_count(row)) {
        return MP_OK;
    }
    mp_strided source = {.ref = MP_IN(i)}, target = {.ref = MP_NOWHERE};
    MP_TRY(mp_plan_scratch_shape(p, row, given->type, &target.ref));
    mp_shape_broadcast_strides(&shape, row, source.stride);
    mp_shape_strides(row, target.stride);
    *out = target.ref;
    return mp_plan_strided_copy(p, row, mp_dtype_size(given->type), &source, &target);
}

static mp_status plan_layer_norm(mp_planner *p) {
    const kind *of = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    const bool wide = mp_node_int(p->node, "stash_type", MP_F32) == MP_F64;
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->shape.rank, "axis", &axis));
    mp_shape row = {.rank = 0}, statistics = x->shape;
    for (int d = axis; d < x->shape.rank; d++) {
        row.dim[row.rank++] = x->shape.dim[d];
        statistics.dim[d] = 1;
    }
    mp_norm n = {.type = x->type, .out_type = p->in[1].type, .x = MP_IN(0), .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = mp_shape_span(&x->shape, 0, axis),
                            .columns = mp_shape_count(&row),
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                            .centred = of->centred,
                            .wide_stats = wide};
    MP_TRY(vector(p, 1, "Scale", &row, &n.scale));
    MP_TRY(vector(p, of->bias, "B", &row, &n.bias));
    MP_TRY(mp_plan_output(p, 0, n.out_type, &x->shape));
    const int stats[] = {of->mean, of->inverse};
    for (int i = 0; i < 2; i++) {
        if (stats[i] >= 0) {
            MP_TRY(mp_plan_output(p, stats[i], wide ? MP_F64 : MP_F32, &statistics));
        }
    }
    n.mean = of->mean >= 0 ? output_or_nowhere(p, of->mean) : MP_NOWHERE;
    n.inverse = of->inverse >= 0 ? output_or_nowhere(p, of->inverse) : MP_NOWHERE;
    return mp_plan_norm(p, &n);
}

/* ---- the sum of two tensors, brought to mean 0: between the blocks of a transformer ---- */

/* Rows of `skip`, which the rows of x go through again and again. */
static mp_status skip_rows(const mp_shape *x, const mp_shape *skip, int64_t *out) {
    mp_shape both = {.rank = 0};
    const int lead = x->rank - skip->rank;
    bool fits = lead >= 0 && skip->rank > 0 && mp_shape_broadcast(x, skip, &both) == MP_OK &&
                mp_shape_equal(&both, x) && skip->dim[skip->rank - 1] == x->dim[x->rank - 1];
    for (int d = 0, inside = 0; fits && d < skip->rank; d++) { /* only the first may be repeated */
        inside = inside || skip->dim[d] != 1;
        fits = !inside || skip->dim[d] == x->dim[lead + d];
    }
    if (!fits) {
        char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED, "skip of shape %s for an input of shape %s",
                       mp_shape_text(skip, text), mp_shape_text(x, x_text));
    }
    *out = mp_shape_span(skip, 0, skip->rank - 1);
    return MP_OK;
}

/* The input that is added besides: a row, or of a passes' row a third tensor; or a row that the
 * second one is multiplied by. */
static int third_of(const kind *of) {
    return of->centred ? 4 : 3;
}

/* Whether the second input of a passes' row is times a row before it is added. */
static bool is_scaled(const mp_planner *p) {
    return mp_node_int(p->node, "scaled", 0) != 0;
}

/* The second input, times that row if there is one. */
static mp_status plan_addend(mp_planner *p, mp_operand *out) {
    const int third = third_of(p->node->op->detail);
    *out = (mp_operand){MP_IN(1), &p->in[1].shape};
    if (!is_scaled(p)) {
        return MP_OK;
    }
    mp_ref scaled = MP_NOWHERE;
    MP_TRY(mp_plan_scratch_shape(p, out->shape, p->in[1].type, &scaled));
    MP_TRY(mp_pointwise2(p, "mul", p->in[1].type, *out,
                         (mp_operand){MP_IN(third), &p->in[third].shape}, scaled, out->shape, 0,
                         0));
    out->ref = scaled;
    return MP_OK;
}

/* Of shapes that the kernel cannot add row by row: the sum first, then it is normalised. */
static mp_status plan_sum_and_norm(mp_planner *p, const mp_shape *both) {
    const kind *of = p->node->op->detail;
    const mp_dtype type = p->in[0].type;
    const int last = both->rank - 1, third = third_of(of);
    const mp_shape row = {.rank = 1, .dim = {both->dim[last]}};
    mp_norm n = {.type = type, .out_type = type, .x = MP_OUT(3), .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = mp_shape_span(both, 0, last),
                            .columns = row.dim[0],
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-12f),
                            .centred = of->centred};
    MP_TRY(vector(p, 2, "gamma", &row, &n.scale));
    MP_TRY(vector(p, of->bias, "beta", &row, &n.bias));
    mp_shape statistics = *both;
    statistics.dim[last] = 1;
    MP_TRY(mp_plan_output(p, 0, type, both));
    MP_TRY(mp_plan_output(p, 1, MP_F32, &statistics)); /* passes leave these two out */
    MP_TRY(mp_plan_output(p, 2, MP_F32, &statistics));
    MP_TRY(mp_plan_output(p, 3, type, both));
    if (!mp_plan_wants(p, 3)) {
        MP_TRY(mp_plan_scratch_shape(p, both, type, &n.x));
    }
    if (mp_shape_count(both) == 0) {
        return MP_OK;
    }
    mp_operand addend;
    MP_TRY(plan_addend(p, &addend));
    MP_TRY(mp_pointwise2(p, "add", type, (mp_operand){MP_IN(0), &p->in[0].shape}, addend, n.x, both,
                         0, 0));
    if (mp_plan_in(p, third) != NULL && !is_scaled(p)) {
        MP_TRY(mp_pointwise2(p, "add", type, (mp_operand){n.x, both},
                             (mp_operand){MP_IN(third), &p->in[third].shape}, n.x, both, 0, 0));
    }
    return mp_plan_norm(p, &n);
}

/* Whether a passes' row is to add tensors that are not alike. */
static bool is_uneven(const mp_planner *p, mp_shape *both) {
    const kind *of = p->node->op->detail;
    const mp_shape *x = &p->in[0].shape, *skip = &p->in[1].shape;
    const mp_tensor *third = of->any_sum && !is_scaled(p) ? mp_plan_in(p, third_of(of)) : NULL;
    const mp_shape *more = third != NULL ? &third->shape : x;
    return of->any_sum && !(mp_shape_equal(x, skip) && mp_shape_equal(x, more)) &&
           mp_shape_broadcast(x, skip, both) == MP_OK &&
           mp_shape_broadcast(both, more, both) == MP_OK && both->rank > 0;
}

static mp_status plan_skip_norm(mp_planner *p) {
    const kind *of = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    mp_shape both;
    if (is_uneven(p, &both)) {
        return plan_sum_and_norm(p, &both);
    }
    if (x->shape.rank == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "the input must not be a scalar");
    }
    const int last = x->shape.rank - 1, added = third_of(of);
    const mp_shape row = {.rank = 1, .dim = {x->shape.dim[last]}};
    mp_shape statistics = x->shape;
    statistics.dim[last] = 1;
    mp_norm n = {.type = x->type,
                 .out_type = x->type,
                 .x = MP_IN(0),
                 .skip = MP_IN(1),
                 .out = MP_OUT(0),
                 .mean = output_or_nowhere(p, 1),
                 .inverse = output_or_nowhere(p, 2),
                 .sum = output_or_nowhere(p, 3)};
    n.args = (mp_norm_args){.rows = mp_shape_span(&x->shape, 0, last),
                            .columns = row.dim[0],
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-12f),
                            .centred = of->centred};
    MP_TRY(skip_rows(&x->shape, &p->in[1].shape, &n.args.skip_rows));
    MP_TRY(vector(p, 2, "gamma", &row, &n.scale));
    MP_TRY(vector(p, of->bias, "beta", &row, &n.bias));
    n.args.scales = of->any_sum && is_scaled(p);
    if (!of->any_sum || n.args.scales) {
        MP_TRY(vector(p, added, n.args.scales ? "scale of skip" : "bias", &row, &n.add));
    } else if (mp_plan_in(p, added) != NULL) {
        n.add = MP_IN(added);
        n.args.add_step = row.dim[0];
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, MP_F32, &statistics));
    MP_TRY(mp_plan_output(p, 2, MP_F32, &statistics));
    MP_TRY(mp_plan_output(p, 3, x->type, &x->shape));
    return mp_plan_norm(p, &n);
}

/* ---- rows of some channels of a batch, a scale for each channel ---- */

static mp_status check_channels(const mp_planner *p, int i, const char *name, int64_t count) {
    const mp_shape *shape = &p->in[i].shape;
    char text[MP_SHAPE_TEXT];
    return shape->rank == 1 && shape->dim[0] == count
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; %lld values are needed", name,
                         mp_shape_text(shape, text), (long long)count);
}

/* `groups` rows for each element of the batch, with `per_row` scales each. */
static mp_status plan_channels(mp_planner *p, int64_t groups, int64_t per_row) {
    const mp_tensor *x = &p->in[0];
    const int64_t channels = x->shape.dim[1];
    const int64_t inner = mp_shape_span(&x->shape, 2, x->shape.rank);
    mp_norm n = {.type = x->type,
                 .out_type = x->type,
                 .x = MP_IN(0),
                 .scale = MP_IN(1),
                 .bias = MP_IN(2),
                 .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = x->shape.dim[0] * groups,
                            .columns = groups > 0 ? channels / groups * inner : 0,
                            .groups = groups,
                            .per_row = per_row,
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                            .centred = 1};
    if (n.args.columns > 0) {
        const int64_t share = n.args.columns / per_row; /* of a scale */
        n.args.inner = share;
        n.args.by_inner = mp_divider(share < 1 << 30 ? (uint32_t)share : 1u << 30);
    }
    MP_TRY(check_channels(p, 1, "scale", groups * per_row));
    MP_TRY(check_channels(p, 2, "B", groups * per_row));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_plan_norm(p, &n);
}

static mp_status check_rank(const mp_planner *p, int least) {
    char text[MP_SHAPE_TEXT];
    return p->in[0].shape.rank >= least
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "X of shape %s; %d dimensions or more are needed",
                         mp_shape_text(&p->in[0].shape, text), least);
}

static mp_status plan_instance_norm(mp_planner *p) {
    MP_TRY(check_rank(p, 3));
    return plan_channels(p, p->in[0].shape.dim[1], 1);
}

static mp_status plan_group_norm(mp_planner *p) {
    const bool *by_group = p->node->op->detail;
    const int64_t groups = mp_node_int(p->node, "num_groups", 0);
    MP_TRY(check_rank(p, 2));
    const int64_t channels = p->in[0].shape.dim[1];
    if (groups < 1 || channels % groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld channels do not make num_groups=%lld groups",
                       (long long)channels, (long long)groups);
    }
    return plan_channels(p, groups, *by_group ? 1 : channels / groups);
}

/* ---- MeanVarianceNormalization: rows of any dimensions, no scale ---- */

static mp_status plan_mean_variance(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int rank = x->shape.rank;
    const float floor = 1e-9f; /* as ONNX defines the operator */
    uint32_t axes = 0;
    int count = 0;
    MP_TRY(mp_listed_axes(p, "axes", -1, rank, &axes, &count));
    if (count < 0) {
        MP_TRY(check_rank(p, 4));
        axes = 1u << 0 | 1u << 2 | 1u << 3;
    }
    /* The dimensions that are kept first, then those of a row. */
    mp_shape shape = {.rank = 0}, row = {.rank = 0};
    mp_strided given = {.ref = MP_IN(0)}, transposed = {.ref = MP_NOWHERE};
    int64_t stride[MP_RANK_MAX] = {0};
    mp_shape_strides(&x->shape, stride);
    for (uint32_t part = 0; part < 2; part++) {
        for (int d = 0; d < rank; d++) {
            if ((axes >> d & 1u) == part) {
                given.stride[shape.rank] = stride[d];
                shape.dim[shape.rank++] = x->shape.dim[d];
            }
            if (part == 1 && (axes >> d & 1u) == 1) {
                row.dim[row.rank++] = x->shape.dim[d];
            }
        }
    }
    mp_norm n = {.type = x->type, .out_type = x->type, .x = MP_IN(0), .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = mp_shape_span(&shape, 0, rank - row.rank),
                            .columns = mp_shape_count(&row),
                            .floor = floor,
                            .centred = 1};
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    const bool in_order = axes >> (rank - row.rank) == (1u << row.rank) - 1;
    if (in_order || mp_shape_count(&x->shape) == 0) {
        return mp_plan_norm(p, &n);
    }
    const size_t size = mp_dtype_size(x->type);
    mp_shape_strides(&shape, transposed.stride);
    MP_TRY(mp_plan_scratch_shape(p, &x->shape, x->type, &transposed.ref));
    MP_TRY(mp_plan_strided_copy(p, &shape, size, &given, &transposed));
    n.x = transposed.ref;
    n.out = transposed.ref; /* each lane writes what it alone has read */
    MP_TRY(mp_plan_norm(p, &n));
    given.ref = MP_OUT(0);
    return mp_plan_strided_copy(p, &shape, size, &transposed, &given);
}

/* ---- the rows ---- */

static const mp_attr_def layer_attrs[] = {
    {"axis", MP_ATTR_INT}, {"epsilon", MP_ATTR_FLOAT}, {"stash_type", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def new_layer_attrs[] = {
    {"axis", MP_ATTR_INT}, {"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def epsilon_attr[] = {{"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def own_attrs[] = {
    {"epsilon", MP_ATTR_FLOAT}, {"scaled", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def group_attrs[] = {
    {"epsilon", MP_ATTR_FLOAT}, {"num_groups", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def axes_attr[] = {{"axes", MP_ATTR_INTS}, {NULL, 0}};

static const kind layer = {.centred = true, .bias = 2, .mean = 1, .inverse = 2};
static const kind simplified = {.bias = -1, .mean = -1, .inverse = 1};
static const kind root_mean_square = {.bias = -1, .mean = -1, .inverse = -1};
static const kind skip_layer = {.centred = true, .bias = 3};
static const kind skip_simplified = {.bias = -1};
static const kind own_skip_layer = {.centred = true, .any_sum = true, .bias = 3};
static const kind own_skip_simplified = {.any_sum = true, .bias = -1};
static const bool by_group = true, by_channel = false;

enum {
    NARROW = 1u << MP_F16 | 1u << MP_BF16,
    STATS = 1u << MP_F32 | 1u << MP_F64,
    SINGLE = 1u << MP_F32 | NARROW,
};

/* X and the result may be of different types: one row for each type of X. */
#define MIXED(op_name, first, which, x, v)                                     \
    {                                                                          \
        .domain = "", .name = (op_name), .since = (first), .until = (first),   \
        .types = {{"T", (x)}, {"V", (v)}, {"U", STATS}}, .attrs = layer_attrs, \
        .plan = plan_layer_norm, .detail = (which)                             \
    }
#define MIXED_ALL(op_name, first, which)                                               \
    MIXED(op_name, first, which, MP_BIT(MP_F32), SINGLE),                              \
        MIXED(op_name, first, which, MP_BIT(MP_F64), MP_BIT(MP_F64)),                  \
        MIXED(op_name, first, which, MP_BIT(MP_F16), MP_BIT(MP_F16) | MP_BIT(MP_F32)), \
        MIXED(op_name, first, which, MP_BIT(MP_BF16), MP_BIT(MP_BF16) | MP_BIT(MP_F32))
#define RMS(x, v)                                                                             \
    {                                                                                         \
        .domain = "", .name = "RMSNormalization", .since = 23, .until = 23,                   \
        .types = {{"T", (x)}, {"V", (v)}}, .attrs = new_layer_attrs, .plan = plan_layer_norm, \
        .detail = &root_mean_square                                                           \
    }
#define SKIP(domain_, op_name, attrs_, which)                                                     \
    {                                                                                             \
        .domain = (domain_), .name = (op_name), .since = 1, .until = 1, .types = {{"T", SINGLE}}, \
        .attrs = (attrs_), .plan = plan_skip_norm, .detail = (which)                              \
    }

static const mp_op ops[] = {
    MIXED_ALL("LayerNormalization", 1, &layer),
    {.domain = "",
     .name = "LayerNormalization",
     .since = 17,
     .until = 17,
     .types = {{"T", MP_FLOATS}, {"U", MP_BIT(MP_F32)}},
     .attrs = new_layer_attrs,
     .plan = plan_layer_norm,
     .detail = &layer},
    MIXED_ALL("SimplifiedLayerNormalization", 1, &simplified),
    RMS(MP_BIT(MP_F32), SINGLE),
    RMS(MP_BIT(MP_F64), MP_BIT(MP_F64)),
    RMS(MP_BIT(MP_F16), MP_BIT(MP_F16) | MP_BIT(MP_F32)),
    RMS(MP_BIT(MP_BF16), MP_BIT(MP_BF16) | MP_BIT(MP_F32)),
    SKIP("com.microsoft", "SkipLayerNormalization", epsilon_attr, &skip_layer),
    SKIP("com.microsoft", "SkipSimplifiedLayerNormalization", epsilon_attr, &skip_simplified),
    SKIP(MP_OWN_DOMAIN, "SkipLayerNormalization", own_attrs, &own_skip_layer),
    SKIP(MP_OWN_DOMAIN, "SkipSimplifiedLayerNormalization", own_attrs, &own_skip_simplified),
    {.domain = "",
     .name = "InstanceNormalization",
     .since = 1,
     .until = 22,
     .types = {{"T", MP_FLOATS}},
     .attrs = epsilon_attr,
     .plan = plan_instance_norm},
    {.domain = "",
     .name = "GroupNormalization",
     .since = 18,
     .until = 18,
     .types = {{"T", MP_FLOATS}},
     .attrs = group_attrs,
     .plan = plan_group_norm,
     .detail = &by_group},
    {.domain = "",
     .name = "GroupNormalization",
     .since = 21,
     .until = 21,
     .types = {{"T", MP_FLOATS}},
     .attrs = group_attrs,
     .plan = plan_group_norm,
     .detail = &by_channel},
    {.domain = "",
     .name = "MeanVarianceNormalization",
     .since = 9,
     .until = 13,
     .types = {{"T", MP_FLOATS}},
     .attrs = axes_attr,
     .plan = plan_mean_variance},
};

const mp_op_family mp__family_norm = {"norm", ops, MP_COUNT_OF(ops)};
