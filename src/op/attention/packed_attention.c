/* packed_attention.c - PackedAttention and PackedMultiHeadAttention of com.microsoft: the tokens of
 * a batch without its padding, entry by entry. They get their padding back for the time of the
 * attention, which leaves it out by the lengths of entries. cumulative_sequence_length alone says
 * where tokens are: it knows what token_offset says.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/attention/heads_bias.h"
#include "op/attention/padding_steps.h"
#include "op/core/families.h"

/* Where a row has its inputs. */
typedef struct inputs {
    int places, starts, score_bias;
} inputs;

static const inputs *of_row(const mp_planner *p) {
    return p->node->op->detail;
}

/* A batch as it is without its padding. */
typedef struct packed {
    mp_dense d;
    int64_t tokens;
} packed;

static mp_status read_batch(const mp_planner *p, packed *x) {
    const mp_shape *places = &p->in[of_row(p)->places].shape;
    const mp_shape *starts = &p->in[of_row(p)->starts].shape;
    *x = (packed){.d = {.type = p->in[0].type}, .tokens = p->in[0].shape.dim[0]};
    MP_TRY(mp_dense_heads(p, &x->d.heads));
    if (places->rank != 2 || starts->rank != 1 || starts->dim[0] != places->dim[0] + 1) {
        char text[2][MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "token_offset of shape %s and cumulative_sequence_length of shape %s; they "
                       "must be of batch and rows, and one longer than a batch",
                       mp_shape_text(places, text[0]), mp_shape_text(starts, text[1]));
    }
    x->d.batch = places->dim[0];
    x->d.rows = x->d.fresh = places->dim[1];
    return MP_OK;
}

/* Whether no entry has padding. */
static bool is_full(const packed *x) {
    return x->tokens == x->d.batch * x->d.rows;
}

/* Tensors with rows of `width` elements get their padding, in scratch memory. */
static mp_status pad_rows(mp_planner *p, const packed *x, int64_t width, int count, mp_ref *at) {
    const mp_shape shape = {.rank = 3, .dim = {x->d.batch, x->d.rows, width}};
    mp_padding pad = {.type = x->d.type,
                      .kind = K_ROWS_PADDED,
                      .batch = x->d.batch,
                      .length = x->d.rows,
                      .width = width,
                      .given = x->tokens,
                      .rows = x->d.batch * x->d.rows,
                      .count = count,
                      .starts = MP_IN(of_row(p)->starts)};
    if (is_full(x)) {
        return MP_OK;
    }
    for (int i = 0; i < count; i++) {
        pad.x[i] = at[i];
        MP_TRY(mp_plan_scratch_shape(p, &shape, x->d.type, &at[i]));
        pad.out[i] = at[i];
    }
    return mp_plan_padding(p, &pad);
}

/* Attention of Q, K and V, which are where `d` says, and the result packed. */
static mp_status attend(mp_planner *p, const packed *x) {
    const mp_dense *d = &x->d;
    const int64_t width = d->heads * d->value;
    const mp_shape y = {.rank = 2, .dim = {x->tokens, width}};
    const mp_shape shape = {.rank = 3, .dim = {d->batch, d->rows, width}};
    const mp_ref starts = MP_IN(of_row(p)->starts);
    mp_attention a = {.debug_mode = MP_DEBUG_NONE, .lengths = is_full(x) ? MP_NOWHERE : starts};
    mp_ref padded = MP_OUT(0);
    MP_TRY(mp_plan_output(p, 0, d->type, &y));
    mp_dense_rule(p, d, &a);
    a.rule.lengths_summed = 1;
    MP_TRY(mp_dense_score_bias(p, of_row(p)->score_bias, &a));
    if (!is_full(x)) {
        MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, &padded));
    }
    a.out = mp_heads_last(padded, d->heads, d->rows, d->value);
    MP_TRY(mp_dense_attend(p, d, &a));
    if (is_full(x)) {
        return MP_OK;
    }
    const mp_padding pad = {.type = d->type,
                            .kind = K_ROWS_PACKED,
                            .batch = d->batch,
                            .length = d->rows,
                            .width = width,
                            .given = d->batch * d->rows,
                            .rows = x->tokens,
                            .count = 1,
                            .x = {padded},
                            .out = {MP_OUT(0)},
                            .starts = starts};
    return mp_plan_padding(p, &pad);
}

/* ---- PackedAttention ---- */

enum { IN_X, IN_WEIGHTS, IN_BIAS };

static mp_status plan_projected(mp_planner *p) {
    const int operands[3] = {IN_X, IN_WEIGHTS, IN_BIAS};
    mp_projection projection;
    mp_ref at = MP_NOWHERE;
    packed x;
    MP_TRY(mp_dense_operands(p, operands, 2, &projection));
    MP_TRY(read_batch(p, &x));
    MP_TRY(mp_dense_columns(p, projection.out, &x.d));
    MP_TRY(mp_dense_project(p, x.d.type, &projection, &at));
    MP_TRY(pad_rows(p, &x, projection.out, 1, &at));
    mp_dense_place(&x.d, at);
    return attend(p, &x);
}

/* ---- PackedMultiHeadAttention ---- */

enum { IN_QUERY, IN_KEY, IN_VALUE, IN_ADDED };

/* The sizes of heads; `widths` gets those of rows. Q, K and V as [tokens, heads, 3, size] are one
 * row of three widths. */
static mp_status read_heads(const mp_planner *p, packed *x, int64_t widths[3]) {
    const mp_tensor *in[3] = {&p->in[IN_QUERY], mp_plan_in(p, IN_KEY), mp_plan_in(p, IN_VALUE)};
    const mp_shape *q = &in[0]->shape;
    bool fits = (in[1] == NULL) == (in[2] == NULL) && q->rank == (in[1] == NULL ? 4 : 2);
    if (fits && in[1] == NULL) {
        fits = q->dim[1] == x->d.heads && q->dim[2] == 3;
        x->d.head = x->d.value = q->dim[3];
        widths[0] = widths[1] = widths[2] = x->d.heads * x->d.head;
    } else if (fits) {
        const mp_shape *v = &in[2]->shape;
        widths[0] = widths[1] = q->dim[1];
        widths[2] = v->rank == 2 ? v->dim[1] : -1;
        x->d.head = widths[0] / x->d.heads;
        x->d.value = widths[2] / x->d.heads;
        fits = mp_shape_equal(q, &in[1]->shape) && v->rank == 2 && v->dim[0] == x->tokens &&
               widths[0] % x->d.heads == 0 && widths[2] % x->d.heads == 0;
    }
    if (!fits) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(
            INVALID_ARGUMENT,
            "a query of shape %s; with key and value all must be of tokens and a width of "
            "%lld heads, alone of tokens, heads, 3 and head size",
            mp_shape_text(q, text), (long long)x->d.heads);
    }
    return MP_OK;
}

static mp_status add_bias(mp_planner *p, const packed *x, const int64_t widths[3], mp_ref in[3]) {
    const mp_tensor *bias = mp_plan_in(p, IN_ADDED);
    const uint64_t size = mp_dtype_size(x->d.type);
    mp_ref at = MP_IN(IN_ADDED);
    if (bias == NULL) {
        return MP_OK;
    }
    if (bias->shape.rank != 1 || bias->shape.dim[0] != widths[0] + widths[1] + widths[2]) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "a bias of shape %s; it must be a list of %lld",
                       mp_shape_text(&bias->shape, text),
                       (long long)(widths[0] + widths[1] + widths[2]));
    }
    if (mp_plan_in(p, IN_KEY) == NULL) {
        MP_TRY(mp_dense_pack_bias(p, &x->d, &at));
        mp_heads_bias all = {in[0], at, x->tokens, 3 * widths[0]};
        MP_TRY(mp_plan_heads_bias(p, x->d.type, &all, 1));
        in[0] = all.x;
        return MP_OK;
    }
    mp_heads_bias sides[3];
    for (int i = 0; i < 3; i++) {
        sides[i] = (mp_heads_bias){in[i], at, x->tokens, widths[i]};
        at = mp_ref_at(at, (uint64_t)widths[i] * size);
    }
    MP_TRY(mp_plan_heads_bias(p, x->d.type, sides, 3));
    for (int i = 0; i < 3; i++) {
        in[i] = sides[i].x;
    }
    return MP_OK;
}

static mp_status plan_apart(mp_planner *p) {
    int64_t widths[3] = {0};
    mp_ref in[3] = {MP_IN(IN_QUERY), MP_IN(IN_KEY), MP_IN(IN_VALUE)};
    packed x;
    if (p->in[IN_QUERY].shape.rank < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "a query without tokens");
    }
    MP_TRY(read_batch(p, &x));
    MP_TRY(read_heads(p, &x, widths));
    MP_TRY(add_bias(p, &x, widths, in));
    if (mp_plan_in(p, IN_KEY) == NULL) {
        MP_TRY(pad_rows(p, &x, 3 * widths[0], 1, in));
        x.d.q = mp_dense_side(&x.d, in[0], x.d.rows, 3, 0);
        x.d.k = mp_dense_side(&x.d, in[0], x.d.rows, 3, 1);
        x.d.v = mp_dense_side(&x.d, in[0], x.d.rows, 3, 2);
        return attend(p, &x);
    }
    const int alike = widths[2] == widths[0] ? 3 : 2;
    MP_TRY(pad_rows(p, &x, widths[0], alike, in));
    if (alike < 3) {
        MP_TRY(pad_rows(p, &x, widths[2], 1, &in[2]));
    }
    x.d.q = mp_heads_last(in[0], x.d.heads, x.d.rows, x.d.head);
    x.d.k = mp_heads_last(in[1], x.d.heads, x.d.rows, x.d.head);
    x.d.v = mp_heads_last(in[2], x.d.heads, x.d.rows, x.d.value);
    return attend(p, &x);
}

/* ---- the rows ---- */

static const mp_attr_def attrs[] = {{"mask_filter_value", MP_ATTR_FLOAT},
                                    {"num_heads", MP_ATTR_INT},
                                    {"qkv_hidden_sizes", MP_ATTR_INTS},
                                    {"scale", MP_ATTR_FLOAT},
                                    {NULL, 0}};
static const inputs projected = {.places = 3, .starts = 4, .score_bias = 5};
static const inputs apart = {.places = 4, .starts = 5, .score_bias = 6};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "PackedAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"M", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .plan = plan_projected,
     .detail = &projected},
    {.domain = "com.microsoft",
     .name = "PackedMultiHeadAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"M", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .plan = plan_apart,
     .detail = &apart},
};

const mp_op_family mp__family_packed_attention = {"packed_attention", ops, MP_COUNT_OF(ops)};
