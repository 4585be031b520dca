/* ordered_attention.c - QOrderedAttention of com.microsoft: attention in int8 from end to end. What
 * a step gives is rounded to bytes by a scale of its own: Q, K and V, the scores, their weights,
 * the result. A row that sees no key is 0.
 *
 * Scores and weights are rounded as a whole, so they are written down: for some heads at a time,
 * that they stay within a bound.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_products.h"
#include "op/attention/dense_steps.h"
#include "op/core/families.h"
#include "op/move/strided_copy.h"
#include "op/quantize/integer_steps.h"
#include "op/quantize/ordered_steps.h"

#include <math.h>

enum { SIDES = 3, SCORE_BYTES_MAX = 1 << 28 /* as floats, at a time */ };

/* Three in a row are of Q, K and V. */
enum {
    IN_X,
    IN_X_SCALE,
    IN_SIDE_SCALE,
    IN_WEIGHT = IN_SIDE_SCALE + SIDES,
    IN_WEIGHT_SCALE = IN_WEIGHT + SIDES,
    IN_BIAS = IN_WEIGHT_SCALE + SIDES,
    IN_SCORE_SCALE = IN_BIAS + SIDES,
    IN_SHARE_SCALE, /* of the weights that the softmax gives */
    IN_Y_SCALE,
    IN_MASK,
    IN_PAST,
    IN_SCORE_BIAS
};

typedef struct ordered {
    mp_dense d;
    int64_t tokens, in, width;
    mp_ref q, k, v; /* [batch, heads] of rows x head, head x rows, rows x head */
} ordered;

/* ---- what is asked for ---- */

static mp_status accept_ordered(const mp_planner *p) {
    static const mp_order_rule orders[] = {
        {"order_input", K_ORDER_ROW}, {"order_weight", K_ORDER_COL}, {"order_output", K_ORDER_ROW}};
    MP_TRY(mp_orders_check(p, orders, MP_COUNT_OF(orders)));
    if (mp_plan_in(p, IN_PAST) != NULL || mp_plan_in(p, IN_SCORE_BIAS) != NULL) {
        return MP_FAIL(UNSUPPORTED, "past and attention_bias are not supported; leave them out");
    }
    return mp_plan_in(p, IN_SCORE_SCALE) != NULL && mp_plan_in(p, IN_SHARE_SCALE) != NULL
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "scale_QKT_gemm and scale_QKT_softmax must be given");
}

static mp_status read_sizes(const mp_planner *p, ordered *x) {
    const mp_attr *sizes = mp_node_attr(p->node, "qkv_hidden_sizes");
    mp_projection side[SIDES];
    for (int i = 0; i < SIDES; i++) {
        const int operands[3] = {IN_X, IN_WEIGHT + i, IN_BIAS + i};
        MP_TRY(mp_dense_operands(p, operands, 3, &side[i]));
        const int64_t asked = sizes == NULL || sizes->count == 0           ? side[0].out
                              : i < (int)sizes->count && sizes->count == 3 ? sizes->ints[i]
                                                                           : -1;
        if (side[i].out != side[0].out || side[i].out != asked) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "the weights in input %d have %lld columns; Q, K and V must have the "
                           "same, and qkv_hidden_sizes must be these three numbers",
                           IN_WEIGHT + i, (long long)side[i].out);
        }
    }
    *x = (ordered){.d = {.type = MP_F32, .batch = p->in[IN_X].shape.dim[0]},
                   .tokens = side[0].tokens,
                   .in = side[0].in,
                   .width = side[0].out};
    MP_TRY(mp_dense_heads(p, &x->d.heads));
    if (x->width % x->d.heads != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld columns for %lld heads", (long long)x->width,
                       (long long)x->d.heads);
    }
    x->d.rows = x->d.fresh = p->in[IN_X].shape.dim[1];
    x->d.head = x->d.value = x->width / x->d.heads;
    return MP_OK;
}

/* ---- Q, K and V ---- */

/* The weights are constants, and then brought into rows once. */
static mp_status prepare_weight(mp_planner *p, int i) {
    return i >= IN_WEIGHT && i < IN_WEIGHT + SIDES ? mp_ordered_prepare(p, i) : MP_OK;
}

/* Side `i` as bytes, and each head of it by itself: its rows, or its columns. */
static mp_status project(mp_planner *p, const ordered *x, int i, bool columns, mp_ref *out) {
    const mp_dense *d = &x->d;
    const mp_shape tokens = {.rank = 2, .dim = {x->tokens, x->width}};
    const mp_shape split = {.rank = 4, .dim = {d->batch, d->rows, d->heads, d->head}};
    const mp_ordered_product product = {.rows = x->tokens,
                                        .in = x->in,
                                        .out = x->width,
                                        .x = MP_IN(IN_X),
                                        .bias = MP_IN(IN_BIAS + i),
                                        .weights = IN_WEIGHT + i,
                                        .x_scale = IN_X_SCALE,
                                        .weight_scale = IN_WEIGHT_SCALE + i,
                                        .out_scale = IN_SIDE_SCALE + i};
    mp_ref bytes = MP_NOWHERE;
    MP_TRY(mp_plan_ordered_product(p, &product, &bytes));
    const int64_t block = d->rows * d->head;
    const mp_strided from = {.ref = bytes, .stride = {d->rows * x->width, x->width, d->head, 1}};
    mp_strided to = {
        .stride = {d->heads * block, columns ? 1 : d->head, block, columns ? d->rows : 1}};
    MP_TRY(mp_plan_scratch_shape(p, &tokens, MP_I8, out));
    to.ref = *out;
    return mp_plan_strided_copy(p, &split, 1, &from, &to);
}

/* ---- scores, weights, values ---- */

/* Some heads of all entries at a time. */
typedef struct part {
    int64_t unit, units;
    mp_ref bytes, floats; /* [units, rows, rows]: scores, then their weights */
} part;

/* A product of bytes for each head of the part, rounded to bytes. */
static mp_status multiply(mp_planner *p, const part *t, int64_t m, int64_t n, int64_t k,
                          const mp_integer_refs *refs) {
    const mp_shape units = {.rank = 1, .dim = {t->units}};
    int64_t stride[2][MP_RANK_MAX] = {{1}, {1}};
    mp_integer_args args = {
        .kind = K_INTEGER_BYTE, .scale_type = K_SCALE_F32, .m = m, .n = n, .k = k};
    MP_TRY(mp_layout_make(&units, stride, 2, &args.batch));
    return mp_plan_integer(p, "product", &args, refs);
}

/* The bytes of the part are scores and become weights. */
static mp_status weigh(mp_planner *p, const ordered *x, const mp_attention *a, const part *t) {
    const mp_matrices all = {t->units, x->d.rows, x->d.rows};
    const mp_attention_softmax_args softmax = {.units = t->units,
                                               .unit_first = t->unit,
                                               .rows = x->d.rows,
                                               .columns = x->d.rows,
                                               .pitch = x->d.rows,
                                               .debug_mode = MP_DEBUG_NONE,
                                               .rule = a->rule};
    mp_ordered_args args = mp_ordered_bytes(&all);
    const mp_reorder widen = {
        .type = MP_F32, .x = t->bytes, .x_scale = MP_IN(IN_SCORE_SCALE), .out = t->floats};
    const mp_reorder round = {
        .type = MP_F32, .x = t->floats, .out = t->bytes, .out_scale = MP_IN(IN_SHARE_SCALE)};
    args.out_bytes = 0;
    MP_TRY(mp_plan_reorder(p, &args, &widen));
    MP_TRY(mp_plan_attention_softmax(p, a, &softmax, t->floats, t->floats, MP_NOWHERE));
    args.x_bytes = 0;
    args.out_bytes = 1;
    return mp_plan_reorder(p, &args, &round);
}

static mp_status plan_part(mp_planner *p, const ordered *x, const mp_attention *a, const part *t,
                           mp_ref y) {
    const mp_dense *d = &x->d;
    const uint64_t at = (uint64_t)(t->unit * d->rows * d->head);
    const mp_integer_refs scores = {.matrix = {mp_ref_at(x->q, at), mp_ref_at(x->k, at)},
                                    .scale = {MP_IN(IN_SIDE_SCALE), MP_IN(IN_SIDE_SCALE + 1)},
                                    .out_scale = MP_IN(IN_SCORE_SCALE),
                                    .out = t->bytes};
    const mp_integer_refs values = {.matrix = {t->bytes, mp_ref_at(x->v, at)},
                                    .scale = {MP_IN(IN_SHARE_SCALE), MP_IN(IN_SIDE_SCALE + 2)},
                                    .out_scale = MP_IN(IN_Y_SCALE),
                                    .out = mp_ref_at(y, at)};
    MP_TRY(multiply(p, t, d->rows, d->rows, d->head, &scores));
    MP_TRY(weigh(p, x, a, t));
    return multiply(p, t, d->rows, d->head, d->rows, &values);
}

static mp_status attend(mp_planner *p, const ordered *x, const mp_attention *a) {
    const mp_dense *d = &x->d;
    const int64_t heads = d->batch * d->heads;
    const mp_shape one = {.rank = 2, .dim = {d->rows, d->rows}};
    const mp_shape tokens = {.rank = 2, .dim = {x->tokens, x->width}};
    const int64_t split[4] = {d->batch, d->heads, d->rows, d->head};
    mp_heads from = mp_heads_first(MP_NOWHERE, d->heads, d->rows, d->head);
    const mp_heads to = mp_heads_last(MP_OUT(0), d->heads, d->rows, d->head);
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&one, MP_F32, &bytes));
    const int64_t fit = bytes < SCORE_BYTES_MAX ? SCORE_BYTES_MAX / (int64_t)bytes : 1;
    part t = {.units = MP_MIN(fit, heads)};
    const mp_shape scores = {.rank = 3, .dim = {t.units, d->rows, d->rows}};
    MP_TRY(mp_plan_scratch_shape(p, &scores, MP_F32, &t.floats));
    MP_TRY(mp_plan_scratch_shape(p, &scores, MP_I8, &t.bytes));
    MP_TRY(mp_plan_scratch_shape(p, &tokens, MP_I8, &from.ref));
    for (const int64_t step = t.units; t.unit < heads; t.unit += step) {
        t.units = MP_MIN(step, heads - t.unit);
        MP_TRY(plan_part(p, x, a, &t, from.ref));
    }
    return mp_plan_heads_copy(p, MP_I8, split, &from, &to);
}

static mp_status plan_ordered(mp_planner *p) {
    static const int scales[] = {IN_X_SCALE,        IN_SIDE_SCALE,  IN_SIDE_SCALE + 1,
                                 IN_SIDE_SCALE + 2, IN_SCORE_SCALE, IN_SHARE_SCALE,
                                 IN_Y_SCALE};
    ordered x;
    MP_TRY(accept_ordered(p));
    MP_TRY(read_sizes(p, &x));
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    const mp_shape y = {.rank = 3, .dim = {x.d.batch, x.d.rows, x.width}};
    MP_TRY(mp_plan_output(p, 0, MP_I8, &y));
    mp_attention a = {.type = MP_F32, .debug_mode = MP_DEBUG_NONE};
    mp_dense_rule(p, &x.d, &a);
    a.rule.filter = -INFINITY; /* bytes of scores say nothing of how far they may be apart */
    MP_TRY(mp_dense_mask(p, IN_MASK, MP_DENSE_CLASSIC, &x.d, &a));
    if (mp_shape_count(&y) == 0) {
        return MP_OK;
    }
    MP_TRY(project(p, &x, 0, false, &x.q));
    MP_TRY(project(p, &x, 1, true, &x.k));
    MP_TRY(project(p, &x, 2, false, &x.v));
    return attend(p, &x, &a);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"num_heads", MP_ATTR_INT},
                                    {"order_input", MP_ATTR_INT},
                                    {"order_output", MP_ATTR_INT},
                                    {"order_weight", MP_ATTR_INT},
                                    {"qkv_hidden_sizes", MP_ATTR_INTS},
                                    {"unidirectional", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QOrderedAttention",
     .since = 1,
     .until = 1,
     .types = {{"Q", MP_BIT(MP_I8)}, {"S", MP_BIT(MP_F32)}, {"G", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .accept = accept_ordered,
     .plan = plan_ordered,
     .prepare = prepare_weight},
};

const mp_op_family mp__family_ordered_attention = {"ordered_attention", ops, MP_COUNT_OF(ops)};
