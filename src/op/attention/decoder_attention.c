/* decoder_attention.c - DecoderAttention of com.microsoft: projections, caches and attention of a
 * decoder's layer, over its own tokens or across to those of an encoder. Tokens come first and
 * entries second; flags that are inputs say which of it is done.
 *
 *     static_kv   use_past and has_layer_state   keys and values
 *     no          no                             projections of query
 *     no          yes                            the caches, and behind them those
 *     yes         no                             projections of key
 *     yes         yes                            the caches
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/core/families.h"

enum {
    IN_QUERY,
    IN_KEY,
    IN_Q_WEIGHT,
    IN_KV_WEIGHT,
    IN_BIAS,
    IN_MASK,
    IN_KEY_CACHE,
    IN_VALUE_CACHE,
    IN_STATIC,
    IN_PAST,
    IN_STATE,
    IN_MASKED
};
enum { OUT_Y, OUT_KEY, OUT_VALUE };

typedef struct flags {
    bool across, past, masked;
} flags;

static mp_status read_flag(const mp_planner *p, int i, bool *out) {
    const mp_tensor *flag = mp_plan_in(p, i);
    *out = false;
    if (flag == NULL || mp_shape_count(&flag->shape) != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "input %d must be one flag", i);
    }
    *out = *(const uint8_t *)flag->data != 0;
    return MP_OK;
}

static mp_status read_flags(const mp_planner *p, flags *out) {
    bool state = false;
    MP_TRY(read_flag(p, IN_STATIC, &out->across));
    MP_TRY(read_flag(p, IN_PAST, &out->past));
    MP_TRY(read_flag(p, IN_STATE, &state));
    out->past = out->past && state;
    return read_flag(p, IN_MASKED, &out->masked);
}

/* Whether weights and bias are those of `width`. */
static bool are_weights(const mp_planner *p, int64_t width) {
    const mp_shape *q = &p->in[IN_Q_WEIGHT].shape;
    const mp_shape *kv = &p->in[IN_KV_WEIGHT].shape;
    const mp_shape *bias = &p->in[IN_BIAS].shape;
    return q->rank == 2 && q->dim[0] == width && q->dim[1] == width && kv->rank == 2 &&
           kv->dim[0] == width && kv->dim[1] == 2 * width && bias->rank == 1 &&
           bias->dim[0] == 3 * width;
}

static mp_status read_sizes(const mp_planner *p, const flags *f, mp_dense *d) {
    const mp_shape *q = &p->in[IN_QUERY].shape;
    const mp_shape *k = &p->in[IN_KEY].shape;
    *d = (mp_dense){.type = p->in[IN_QUERY].type};
    MP_TRY(mp_dense_heads(p, &d->heads));
    if (q->rank != 3 || k->rank != 3 || k->dim[1] != q->dim[1] || k->dim[2] != q->dim[2] ||
        q->dim[2] % d->heads != 0 || !are_weights(p, q->dim[2])) {
        char text[2][MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "query of shape %s and key of shape %s; they must be of rows, batch and a "
                       "width of %lld heads, with weights and a bias of that width",
                       mp_shape_text(q, text[0]), mp_shape_text(k, text[1]), (long long)d->heads);
    }
    d->rows = q->dim[0];
    d->batch = q->dim[1];
    d->head = d->value = q->dim[2] / d->heads;
    d->fresh = !f->across ? d->rows : f->past ? 0 : k->dim[0];
    return MP_OK;
}

static mp_status read_caches(const mp_planner *p, const flags *f, mp_dense *d) {
    const mp_tensor *key = mp_plan_in(p, IN_KEY_CACHE);
    const mp_tensor *value = mp_plan_in(p, IN_VALUE_CACHE);
    if (!f->past) {
        return MP_OK;
    }
    d->room = d->past = key != NULL && key->shape.rank == 4 ? key->shape.dim[2] : 0;
    const mp_shape want = {.rank = 4, .dim = {d->batch, d->heads, d->room, d->head}};
    if (key == NULL || value == NULL || !mp_shape_equal(&key->shape, &want) ||
        !mp_shape_equal(&value->shape, &want)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "use_past needs key_cache and value_cache of shape %s",
                       mp_shape_text(&want, text));
    }
    d->past_at[0] = MP_IN(IN_KEY_CACHE);
    d->past_at[1] = MP_IN(IN_VALUE_CACHE);
    return MP_OK;
}

static mp_status declare(mp_planner *p, mp_dense *d) {
    const mp_shape y = {.rank = 3, .dim = {d->rows, d->batch, d->heads * d->head}};
    const mp_shape cache = {.rank = 4, .dim = {d->batch, d->heads, mp_dense_keys(d), d->head}};
    MP_TRY(mp_plan_output(p, OUT_Y, d->type, &y));
    for (int side = 0; side < 2; side++) {
        MP_TRY(mp_plan_output(p, OUT_KEY + side, d->type, &cache));
        if (mp_plan_wants(p, OUT_KEY + side)) {
            d->present_at[side] = MP_OUT(OUT_KEY + side);
        }
    }
    return MP_OK;
}

static mp_heads tokens_first(const mp_dense *d, mp_ref ref, int64_t sides, int64_t side) {
    const int64_t width = d->heads * d->head;
    const uint64_t offset = (uint64_t)(side * width) * mp_dtype_size(d->type);
    return (mp_heads){mp_ref_at(ref, offset), {sides * width, d->head, d->batch * sides * width}};
}

static mp_status project(mp_planner *p, const flags *f, mp_dense *d) {
    const int64_t width = d->heads * d->head;
    const mp_projection q = {.tokens = d->rows * d->batch,
                             .in = width,
                             .out = width,
                             .x = MP_IN(IN_QUERY),
                             .weights = MP_IN(IN_Q_WEIGHT),
                             .bias = MP_IN(IN_BIAS)};
    const mp_projection kv = {
        .tokens = d->fresh * d->batch,
        .in = width,
        .out = 2 * width,
        .x = MP_IN(f->across ? IN_KEY : IN_QUERY),
        .weights = MP_IN(IN_KV_WEIGHT),
        .bias = mp_ref_at(MP_IN(IN_BIAS), (uint64_t)width * mp_dtype_size(d->type))};
    mp_ref at = MP_NOWHERE;
    MP_TRY(mp_dense_project(p, d->type, &q, &at));
    d->q = tokens_first(d, at, 1, 0);
    MP_TRY(mp_dense_project(p, d->type, &kv, &at));
    d->k = tokens_first(d, at, 2, 0);
    d->v = tokens_first(d, at, 2, 1);
    return MP_OK;
}

static mp_status read_mask(const mp_planner *p, const flags *f, const mp_dense *d,
                           mp_attention *a) {
    const mp_tensor *mask = mp_plan_in(p, IN_MASK);
    if (!f->masked || mask == NULL) {
        return MP_OK;
    }
    if (mask->shape.rank != 2 || mask->shape.dim[0] != d->batch ||
        mask->shape.dim[1] != mp_dense_keys(d)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(
            INVALID_ARGUMENT, "key_padding_mask of shape %s for %lld entries of %lld keys",
            mp_shape_text(&mask->shape, text), (long long)d->batch, (long long)mp_dense_keys(d));
    }
    a->rule.padding_kind = K_PADDING_MARKS;
    a->rule.padding_stride[0] = mp_dense_keys(d);
    a->padding = MP_IN(IN_MASK);
    return MP_OK;
}

static mp_status plan_decoder(mp_planner *p) {
    mp_dense d;
    flags f;
    MP_TRY(read_flags(p, &f));
    MP_TRY(read_sizes(p, &f, &d));
    MP_TRY(read_caches(p, &f, &d));
    MP_TRY(declare(p, &d));
    mp_attention a = {.debug_mode = MP_DEBUG_NONE};
    mp_dense_rule(p, &d, &a);
    MP_TRY(read_mask(p, &f, &d, &a));
    MP_TRY(project(p, &f, &d));
    a.out = tokens_first(&d, MP_OUT(OUT_Y), 1, 0);
    return mp_dense_attend(p, &d, &a);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"mask_filter_value", MP_ATTR_FLOAT}, {"num_heads", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "DecoderAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"B", MP_BIT(MP_BOOL)}},
     .host_in = 1u << IN_STATIC | 1u << IN_PAST | 1u << IN_STATE | 1u << IN_MASKED,
     .attrs = attrs,
     .plan = plan_decoder},
};

const mp_op_family mp__family_decoder_attention = {"decoder_attention", ops, MP_COUNT_OF(ops)};
