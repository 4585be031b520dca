/* multi_head.c - MultiHeadAttention and DecoderMaskedMultiHeadAttention of com.microsoft: Q, K and
 * V apart or packed, each with a bias, masks of padding, caches. The cache of the latter has its
 * rows in order, as ONNX Runtime's CPU provider has them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/attention/heads_bias.h"
#include "op/core/families.h"

/* Where a row has its inputs; query, key and value are the first three of each. */
typedef struct inputs {
    int bias, mask, score_bias, past_key, past_value, past_length, beam_width, beams;
    bool decoder; /* one token after the other */
} inputs;

enum { IN_QUERY, IN_KEY, IN_VALUE };
enum { OUT_Y, OUT_PRESENT_KEY, OUT_PRESENT_VALUE, OUT_SCORES };

typedef enum layout {
    APART,      /* [batch, rows, heads * size] each */
    CROSS,      /* K and V are [batch, heads, keys, size] */
    PACKED_KV,  /* [batch, keys, heads, 2, size] */
    PACKED_ROW, /* Q, K and V are [batch, rows, 3, heads * size] */
    PACKED      /* Q, K and V are [batch, rows, heads, 3, size] */
} layout;

static const inputs *of_row(const mp_planner *p) {
    return p->node->op->detail;
}

static mp_status no_fit(const mp_planner *p, const char *why) {
    static const mp_shape none = {.rank = 0};
    char text[3][MP_SHAPE_TEXT];
    for (int i = 0; i < 3; i++) {
        const mp_tensor *x = mp_plan_in(p, i);
        (void)mp_shape_text(x != NULL ? &x->shape : &none, text[i]);
    }
    return MP_FAIL(INVALID_ARGUMENT, "query of shape %s, key of shape %s and value of shape %s: %s",
                   text[0], text[1], text[2], why);
}

/* ---- sizes ---- */

static mp_status read_apart(const mp_planner *p, const mp_shape *k, const mp_shape *v,
                            mp_dense *d) {
    d->fresh = k->dim[1];
    d->value = v->dim[2] / d->heads;
    return k->dim[2] == d->heads * d->head && v->dim[1] == d->fresh && v->dim[2] % d->heads == 0
               ? MP_OK
               : no_fit(p, "they do not go together");
}

static mp_status read_cross(const mp_planner *p, const mp_shape *k, const mp_shape *v,
                            mp_dense *d) {
    d->fresh = k->dim[2];
    d->value = v->dim[3];
    return k->dim[1] == d->heads && k->dim[3] == d->head && v->dim[1] == d->heads &&
                   v->dim[2] == d->fresh
               ? MP_OK
               : no_fit(p, "they do not go together");
}

static mp_status read_packed_kv(const mp_planner *p, const mp_shape *kv, mp_dense *d) {
    d->fresh = kv->dim[1];
    d->value = d->head;
    return kv->rank == 5 && kv->dim[2] == d->heads && kv->dim[3] == 2 && kv->dim[4] == d->head
               ? MP_OK
               : no_fit(p, "a key without a value must be of batch, keys, heads, 2 and head size");
}

static mp_status read_packed(const mp_planner *p, const mp_shape *q, mp_dense *d) {
    d->head = d->value = q->dim[4];
    d->fresh = d->rows;
    return q->dim[2] == d->heads && q->dim[3] == 3
               ? MP_OK
               : no_fit(p, "a query alone must be of batch, rows, heads, 3 and head size");
}

static mp_status read_packed_row(const mp_planner *p, const mp_shape *q, mp_dense *d) {
    d->head = d->value = q->dim[2] / 3 / d->heads;
    d->fresh = d->rows;
    return d->head * d->heads * 3 == q->dim[2]
               ? MP_OK
               : no_fit(p, "a query alone must be of batch, rows and three times num_heads heads");
}

static mp_status read_sizes(const mp_planner *p, mp_dense *d, layout *out) {
    const mp_tensor *key = mp_plan_in(p, IN_KEY);
    const mp_tensor *value = mp_plan_in(p, IN_VALUE);
    const mp_shape *q = &p->in[IN_QUERY].shape;
    *d = (mp_dense){.type = p->in[IN_QUERY].type};
    MP_TRY(mp_dense_heads(p, &d->heads));
    const int alone = of_row(p)->decoder ? 3 : 5;
    if (q->rank != (key == NULL ? alone : 3) || (key == NULL && value != NULL)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a query of %d dimensions; three are needed beside a key, and %d alone",
                       q->rank, alone);
    }
    d->batch = q->dim[0];
    d->rows = q->dim[1];
    if (of_row(p)->decoder && d->rows != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld queries; DecoderMaskedMultiHeadAttention takes one",
                       (long long)d->rows);
    }
    if (key == NULL) {
        *out = of_row(p)->decoder ? PACKED_ROW : PACKED;
        return (of_row(p)->decoder ? read_packed_row : read_packed)(p, q, d);
    }
    d->head = q->dim[2] / d->heads;
    if (q->dim[2] % d->heads != 0 || key->shape.dim[0] != d->batch) {
        return no_fit(p, "the query does not consist of num_heads heads, or the batches differ");
    }
    if (value == NULL) {
        *out = PACKED_KV;
        return read_packed_kv(p, &key->shape, d);
    }
    const int rank = key->shape.rank;
    if ((rank != 3 && rank != 4) || value->shape.rank != rank || value->shape.dim[0] != d->batch) {
        return no_fit(p, "key and value need three dimensions, or four, and one batch");
    }
    *out = rank == 3 ? APART : CROSS;
    return (rank == 3 ? read_apart : read_cross)(p, &key->shape, &value->shape, d);
}

static mp_status read_past(const mp_planner *p, layout form, mp_dense *d) {
    const mp_tensor *key = mp_plan_in(p, of_row(p)->past_key);
    const mp_tensor *value = mp_plan_in(p, of_row(p)->past_value);
    if (key == NULL && value == NULL) {
        return MP_OK;
    }
    d->room = key != NULL && key->shape.rank == 4 ? key->shape.dim[2] : 0;
    const mp_shape want[2] = {{.rank = 4, .dim = {d->batch, d->heads, d->room, d->head}},
                              {.rank = 4, .dim = {d->batch, d->heads, d->room, d->value}}};
    if (key == NULL || value == NULL || (form != APART && form != PACKED_ROW) ||
        !mp_shape_equal(&key->shape, &want[0]) || !mp_shape_equal(&value->shape, &want[1])) {
        char text[2][MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "past_key and past_value go beside key and value of three dimensions, both, "
                       "and must be of shapes %s and %s",
                       mp_shape_text(&want[0], text[0]), mp_shape_text(&want[1], text[1]));
    }
    d->past = d->room;
    d->past_at[0] = MP_IN(of_row(p)->past_key);
    d->past_at[1] = MP_IN(of_row(p)->past_value);
    if (of_row(p)->decoder || mp_plan_in(p, of_row(p)->past_length) != NULL) {
        MP_TRY(mp_dense_past(p, of_row(p)->past_length, d));
    }
    return d->rows == 1 ? mp_dense_beams(p, of_row(p)->beams, of_row(p)->beam_width, d)
                        : MP_OK; /* a prompt: as ONNX Runtime has it, all beams are one yet */
}

/* ---- where Q, K and V are ---- */

static void place(const mp_dense *d, layout form, const mp_ref in[3], mp_dense *out) {
    out->q = mp_heads_last(in[0], d->heads, d->rows, d->head);
    if (form == APART) {
        out->k = mp_heads_last(in[1], d->heads, d->fresh, d->head);
        out->v = mp_heads_last(in[2], d->heads, d->fresh, d->value);
    } else if (form == CROSS) {
        out->k = mp_heads_first(in[1], d->heads, d->fresh, d->head);
        out->v = mp_heads_first(in[2], d->heads, d->fresh, d->value);
    } else if (form == PACKED_KV) {
        out->k = mp_dense_side(d, in[1], d->fresh, 2, 0);
        out->v = mp_dense_side(d, in[1], d->fresh, 2, 1);
    } else if (form == PACKED_ROW) {
        mp_dense_place(out, in[0]);
    } else {
        out->q = mp_dense_side(d, in[0], d->rows, 3, 0);
        out->k = mp_dense_side(d, in[0], d->rows, 3, 1);
        out->v = mp_dense_side(d, in[0], d->rows, 3, 2);
    }
}

static mp_status add_bias(mp_planner *p, const mp_dense *d, layout form, mp_ref in[3]) {
    const mp_tensor *bias = mp_plan_in(p, of_row(p)->bias);
    const int64_t width = d->heads * d->head;
    const int64_t value_width = d->heads * d->value;
    const uint64_t size = mp_dtype_size(d->type);
    mp_ref at = MP_IN(of_row(p)->bias);
    if (bias == NULL) {
        return MP_OK;
    }
    if (form == PACKED_KV || bias->shape.rank != 1 ||
        bias->shape.dim[0] != 2 * width + value_width) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "a bias of shape %s; it must be a list of %lld, and packed keys and values "
                       "have none",
                       mp_shape_text(&bias->shape, text), (long long)(2 * width + value_width));
    }
    if (form == PACKED || form == PACKED_ROW) {
        if (form == PACKED) {
            MP_TRY(mp_dense_pack_bias(p, d, &at));
        }
        mp_heads_bias all = {in[0], at, d->batch * d->rows, 3 * width};
        MP_TRY(mp_plan_heads_bias(p, d->type, &all, 1));
        in[0] = all.x;
        return MP_OK;
    }
    const int64_t keys = d->batch * d->fresh;
    mp_heads_bias sides[3] = {
        {in[0], at, d->batch * d->rows, width},
        {in[1], mp_ref_at(at, (uint64_t)width * size), keys, width},
        {in[2], mp_ref_at(at, (uint64_t)(2 * width) * size), keys, value_width}};
    const int count = form == CROSS ? 1 : 3; /* keys and values of heads have had theirs */
    MP_TRY(mp_plan_heads_bias(p, d->type, sides, count));
    for (int i = 0; i < count; i++) {
        in[i] = sides[i].x;
    }
    return MP_OK;
}

/* ---- the plan ---- */

static mp_status declare(mp_planner *p, mp_dense *d) {
    const int64_t rows = mp_dense_present_rows(d);
    const mp_shape y = {.rank = 3, .dim = {d->batch, d->rows, d->heads * d->value}};
    const mp_shape key = {.rank = 4, .dim = {d->batch, d->heads, rows, d->head}};
    const mp_shape value = {.rank = 4, .dim = {d->batch, d->heads, rows, d->value}};
    const mp_shape scores = {.rank = 4, .dim = {d->batch, d->heads, d->rows, mp_dense_keys(d)}};
    for (int side = 0; side < 2; side++) {
        if (mp_plan_wants(p, OUT_PRESENT_KEY + side)) {
            d->present_at[side] = MP_OUT(OUT_PRESENT_KEY + side);
        }
    }
    MP_TRY(mp_plan_output(p, OUT_Y, d->type, &y));
    MP_TRY(mp_plan_output(p, OUT_PRESENT_KEY, d->type, &key));
    MP_TRY(mp_plan_output(p, OUT_PRESENT_VALUE, d->type, &value));
    return mp_plan_output(p, OUT_SCORES, d->type, &scores);
}

static mp_status plan_multi_head(mp_planner *p) {
    mp_dense d;
    layout form = APART;
    mp_ref in[3] = {MP_IN(IN_QUERY), MP_IN(IN_KEY), MP_IN(IN_VALUE)};
    if (p->node->op->accept != NULL) {
        MP_TRY(p->node->op->accept(p));
    }
    MP_TRY(read_sizes(p, &d, &form));
    MP_TRY(read_past(p, form, &d));
    mp_attention a = {.debug_mode = MP_DEBUG_NONE};
    mp_dense_rule(p, &d, &a);
    MP_TRY(mp_dense_mask(p, of_row(p)->mask, MP_DENSE_KEYS, &d, &a));
    MP_TRY(mp_dense_score_bias(p, of_row(p)->score_bias, &a));
    MP_TRY(declare(p, &d));
    MP_TRY(add_bias(p, &d, form, in));
    place(&d, form, in, &d);
    a.out = mp_heads_last(MP_OUT(OUT_Y), d.heads, d.rows, d.value);
    if (mp_plan_wants(p, OUT_SCORES)) {
        a.debug = MP_OUT(OUT_SCORES);
        a.debug_mode = 0; /* scaled products, before any mask */
    }
    return mp_dense_attend(p, &d, &a);
}

/* ---- the rows ---- */

static mp_status accept_decoder(const mp_planner *p) {
    return mp_plan_in(p, of_row(p)->past_key) == NULL ||
                   mp_node_int(p->node, "past_present_share_buffer", 0) != 0
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "past_present_share_buffer must be 1 beside past_key");
}

static const mp_attr_def attrs[] = {{"mask_filter_value", MP_ATTR_FLOAT},
                                    {"num_heads", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"unidirectional", MP_ATTR_INT},
                                    {NULL, 0}};
static const mp_attr_def decoder_attrs[] = {{"mask_filter_value", MP_ATTR_FLOAT},
                                            {"num_heads", MP_ATTR_INT},
                                            {"output_qk", MP_ATTR_INT},
                                            {"past_present_share_buffer", MP_ATTR_INT},
                                            {"scale", MP_ATTR_FLOAT},
                                            {NULL, 0}};

static const inputs plain = {.bias = 3,
                             .mask = 4,
                             .score_bias = 5,
                             .past_key = 6,
                             .past_value = 7,
                             .past_length = 8,
                             .beam_width = -1,
                             .beams = 9};
static const inputs decoder = {.mask = 3,
                               .score_bias = 4,
                               .past_key = 5,
                               .past_value = 6,
                               .past_length = 7,
                               .beam_width = 8,
                               .beams = 9,
                               .bias = 10,
                               .decoder = true};

/* A row for each type, since the scores, which have a constraint of their own, are of that type. */
#define ROW(op_name, type, host, op_attrs, op_accept, op_detail)                                \
    {                                                                                           \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,                   \
        .types = {{"T", MP_BIT(type)}, {"QK", MP_BIT(type)}, {"M", MP_BIT(MP_I32)}},            \
        .host_in = (host), .attrs = (op_attrs), .accept = (op_accept), .plan = plan_multi_head, \
        .detail = (op_detail)                                                                   \
    }
#define PLAIN(type) ROW("MultiHeadAttention", type, 1u << 8, attrs, NULL, &plain)
#define DECODER(type) \
    ROW("DecoderMaskedMultiHeadAttention", type, 3u << 7, decoder_attrs, accept_decoder, &decoder)

static const mp_op ops[] = {PLAIN(MP_F32), PLAIN(MP_F16), PLAIN(MP_BF16), DECODER(MP_F32),
                            DECODER(MP_F16)};

const mp_op_family mp__family_multi_head = {"multi_head", ops, MP_COUNT_OF(ops)};
