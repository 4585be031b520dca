/* attention.c - Attention of ai.onnx: scaled dot products with masks, caches and grouped heads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_steps.h"
#include "op/attention/kv_steps.h"
#include "op/core/families.h"

#include <math.h>

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_KEY, IN_PAST_VALUE, IN_NONPAD };
enum { OUT_Y, OUT_PRESENT_KEY, OUT_PRESENT_VALUE, OUT_SCORES };

/* The sizes that the inputs agree on. */
typedef struct sizes {
    int64_t batch, heads, kv_heads, rows, fresh, past;
    int64_t head, value; /* elements of a head of Q and K, of V */
    bool heads_last;     /* three dimensions, heads side by side */
} sizes;

static mp_status sizes_heads_last(const mp_planner *p, sizes *out) {
    const mp_shape *q = &p->in[IN_Q].shape;
    const mp_shape *k = &p->in[IN_K].shape;
    const mp_shape *v = &p->in[IN_V].shape;
    out->heads_last = true;
    out->heads = mp_node_int(p->node, "q_num_heads", 0);
    out->kv_heads = mp_node_int(p->node, "kv_num_heads", 0);
    if (out->heads < 1 || out->kv_heads < 1) {
        return mp_attention_no_fit(
            p, "three dimensions need q_num_heads and kv_num_heads of at least 1");
    }
    if (q->dim[2] % out->heads != 0 || k->dim[2] % out->kv_heads != 0 ||
        v->dim[2] % out->kv_heads != 0) {
        return mp_attention_no_fit(
            p, "the last dimensions are not multiples of q_num_heads and kv_num_heads");
    }
    out->rows = q->dim[1];
    out->fresh = k->dim[1];
    out->head = q->dim[2] / out->heads;
    out->value = v->dim[2] / out->kv_heads;
    return k->dim[2] / out->kv_heads == out->head && v->dim[1] == out->fresh
               ? MP_OK
               : mp_attention_no_fit(p, "heads of Q and K, or lengths of K and V, differ");
}

static mp_status sizes_heads_first(const mp_planner *p, sizes *out) {
    const mp_shape *q = &p->in[IN_Q].shape;
    const mp_shape *k = &p->in[IN_K].shape;
    const mp_shape *v = &p->in[IN_V].shape;
    out->heads = q->dim[1];
    out->kv_heads = k->dim[1];
    out->rows = q->dim[2];
    out->fresh = k->dim[2];
    out->head = q->dim[3];
    out->value = v->dim[3];
    return k->dim[3] == out->head && v->dim[2] == out->fresh && v->dim[1] == out->kv_heads
               ? MP_OK
               : mp_attention_no_fit(p, "heads of Q and K, or lengths of K and V, differ");
}

static bool is_cache(const mp_tensor *cache, const sizes *s, int64_t size) {
    const mp_shape *x = &cache->shape;
    return x->rank == 4 && x->dim[0] == s->batch && x->dim[1] == s->kv_heads &&
           x->dim[2] == s->past && x->dim[3] == size;
}

static mp_status read_past(const mp_planner *p, sizes *out) {
    const mp_tensor *key = mp_plan_in(p, IN_PAST_KEY);
    const mp_tensor *value = mp_plan_in(p, IN_PAST_VALUE);
    out->past = 0;
    if (key == NULL && value == NULL) {
        return MP_OK;
    }
    if (key == NULL || value == NULL) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "past_key and past_value must both be given or both left out");
    }
    if (mp_plan_in(p, IN_NONPAD) != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "nonpad_kv_seqlen is for caches that come as K and V; "
                                         "leave it out beside past_key");
    }
    out->past = key->shape.rank == 4 ? key->shape.dim[2] : 0;
    if (!is_cache(key, out, out->head) || !is_cache(value, out, out->value)) {
        char a[MP_SHAPE_TEXT];
        char b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "past_key of shape %s and past_value of shape %s for %lld entries, %lld "
                       "heads of %lld and %lld elements",
                       mp_shape_text(&key->shape, a), mp_shape_text(&value->shape, b),
                       (long long)out->batch, (long long)out->kv_heads, (long long)out->head,
                       (long long)out->value);
    }
    return MP_OK;
}

static mp_status read_sizes(const mp_planner *p, sizes *out) {
    const mp_shape *q = &p->in[IN_Q].shape;
    const mp_shape *k = &p->in[IN_K].shape;
    const mp_shape *v = &p->in[IN_V].shape;
    if ((q->rank != 3 && q->rank != 4) || k->rank != q->rank || v->rank != q->rank) {
        return mp_attention_no_fit(p, "all need three dimensions or all need four");
    }
    *out = (sizes){.batch = q->dim[0]};
    MP_TRY(q->rank == 3 ? sizes_heads_last(p, out) : sizes_heads_first(p, out));
    if (k->dim[0] != out->batch || v->dim[0] != out->batch) {
        return mp_attention_no_fit(p, "the numbers of entries differ");
    }
    if (out->kv_heads < 1 || out->heads % out->kv_heads != 0) {
        return mp_attention_no_fit(p, "the heads of Q are not a multiple of those of K");
    }
    return read_past(p, out);
}

/* ---- the rule ---- */

static mp_status read_lengths(const mp_planner *p, mp_attention *a) {
    const mp_tensor *lengths = mp_plan_in(p, IN_NONPAD);
    if (lengths == NULL) {
        return MP_OK;
    }
    if (lengths->shape.rank != 1 || lengths->shape.dim[0] != a->rule.batch) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "nonpad_kv_seqlen of shape %s for %lld entries",
                       mp_shape_text(&lengths->shape, text), (long long)a->rule.batch);
    }
    a->lengths = MP_IN(IN_NONPAD);
    a->rule.lengths_wide = 1;
    a->rule.past_by_length = 1;
    return MP_OK;
}

static mp_status read_rule(const mp_planner *p, const sizes *s, mp_attention *a) {
    const mp_tensor *mask = mp_plan_in(p, IN_MASK);
    const mp_attr *scale = mp_node_attr(p->node, "scale");
    a->rule = mp_score_rule(s->batch, s->heads, s->kv_heads, s->rows, s->past + s->fresh);
    a->rule.past = s->past;
    a->rule.scale = scale != NULL ? (double)scale->f : s->head > 0 ? 1 / sqrt((double)s->head) : 1;
    a->rule.softcap = (double)mp_node_float(p->node, "softcap", 0);
    a->rule.causal = mp_node_flag(p->node, "is_causal", false);
    a->mask = a->lengths = a->sink = MP_NOWHERE;
    if (!(a->rule.softcap >= 0)) {
        return MP_FAIL(INVALID_ARGUMENT, "softcap is %g; it must not be negative", a->rule.softcap);
    }
    if (mask != NULL) {
        MP_TRY(mp_score_mask(&a->rule, mask));
        a->mask = MP_IN(IN_MASK);
    }
    return read_lengths(p, a);
}

static mp_status read_debug(const mp_planner *p, mp_attention *a) {
    const int64_t mode = mp_node_int(p->node, "qk_matmul_output_mode", 0);
    a->debug_mode = MP_DEBUG_NONE;
    a->debug = MP_NOWHERE;
    if (!mp_plan_wants(p, OUT_SCORES)) {
        return MP_OK;
    }
    if (mode < 0 || mode > 3) {
        return MP_FAIL(INVALID_ARGUMENT, "qk_matmul_output_mode is %lld; 0 to 3 are possible",
                       (long long)mode);
    }
    a->debug_mode = (int32_t)mode;
    a->debug = MP_OUT(OUT_SCORES);
    return MP_OK;
}

/* ---- outputs and caches ---- */

static mp_status declare(mp_planner *p, const sizes *s) {
    const mp_dtype type = p->in[IN_Q].type;
    const mp_dtype value_type = p->in[IN_V].type;
    const int64_t keys = s->past + s->fresh;
    const mp_shape y = s->heads_last
                           ? (mp_shape){.rank = 3, .dim = {s->batch, s->rows, s->heads * s->value}}
                           : (mp_shape){.rank = 4, .dim = {s->batch, s->heads, s->rows, s->value}};
    const mp_shape key = {.rank = 4, .dim = {s->batch, s->kv_heads, keys, s->head}};
    const mp_shape value = {.rank = 4, .dim = {s->batch, s->kv_heads, keys, s->value}};
    const mp_shape scores = {.rank = 4, .dim = {s->batch, s->heads, s->rows, keys}};
    if (value_type != type) {
        return MP_FAIL(UNSUPPORTED, "Q is of type %s and V of type %s; they must be the same",
                       mp_dtype_name(type), mp_dtype_name(value_type));
    }
    MP_TRY(mp_plan_output(p, OUT_Y, type, &y));
    MP_TRY(mp_plan_output(p, OUT_PRESENT_KEY, type, &key));
    MP_TRY(mp_plan_output(p, OUT_PRESENT_VALUE, type, &value));
    return mp_plan_output(p, OUT_SCORES, type, &scores);
}

static mp_heads heads_of(const sizes *s, mp_ref ref, int64_t heads, int64_t rows, int64_t size) {
    return s->heads_last ? mp_heads_last(ref, heads, rows, size)
                         : mp_heads_first(ref, heads, rows, size);
}

/* The output, or scratch memory of its size. */
static mp_status present_place(mp_planner *p, const sizes *s, int output, int64_t size,
                               mp_ref *out) {
    const mp_shape shape = {.rank = 4, .dim = {s->batch, s->kv_heads, s->past + s->fresh, size}};
    *out = MP_OUT(output);
    if (mp_plan_wants(p, output)) {
        return MP_OK;
    }
    return mp_plan_scratch_shape(p, &shape, p->in[IN_Q].type, out);
}

/* Keys and values of all rows, in one place each. */
static mp_status place_keys(mp_planner *p, const sizes *s, mp_attention *a) {
    const bool wanted = mp_plan_wants(p, OUT_PRESENT_KEY) || mp_plan_wants(p, OUT_PRESENT_VALUE);
    a->k = heads_of(s, MP_IN(IN_K), s->kv_heads, s->fresh, s->head);
    a->v = heads_of(s, MP_IN(IN_V), s->kv_heads, s->fresh, s->value);
    if (s->past == 0 && !wanted) {
        return MP_OK;
    }
    const bool has_past = mp_plan_in(p, IN_PAST_KEY) != NULL;
    mp_kv_append append = {.type = a->type,
                           .batch = s->batch,
                           .heads = s->kv_heads,
                           .size = {s->head, s->value},
                           .past = {has_past ? MP_IN(IN_PAST_KEY) : MP_NOWHERE,
                                    has_past ? MP_IN(IN_PAST_VALUE) : MP_NOWHERE},
                           .fresh = {a->k, a->v},
                           .lengths = MP_NOWHERE,
                           .past_rows = s->past,
                           .past_used = s->past,
                           .fresh_rows = s->fresh,
                           .present_rows = s->past + s->fresh};
    MP_TRY(present_place(p, s, OUT_PRESENT_KEY, s->head, &append.present[0]));
    MP_TRY(present_place(p, s, OUT_PRESENT_VALUE, s->value, &append.present[1]));
    a->k = mp_heads_first(append.present[0], s->kv_heads, append.present_rows, s->head);
    a->v = mp_heads_first(append.present[1], s->kv_heads, append.present_rows, s->value);
    return mp_plan_kv_append(p, &append);
}

static mp_status plan_attention(mp_planner *p) {
    sizes s = {0};
    MP_TRY(read_sizes(p, &s));
    mp_attention a = {.type = p->in[IN_Q].type, .head_size = s.head, .v_head_size = s.value};
    a.q = heads_of(&s, MP_IN(IN_Q), s.heads, s.rows, s.head);
    a.out = heads_of(&s, MP_OUT(OUT_Y), s.heads, s.rows, s.value);
    MP_TRY(read_rule(p, &s, &a));
    MP_TRY(read_debug(p, &a));
    MP_TRY(declare(p, &s));
    MP_TRY(place_keys(p, &s, &a));
    return mp_plan_attention(p, &a);
}

/* ---- the rows ---- */

static const mp_attr_def attrs[] = {{"is_causal", MP_ATTR_INT},
                                    {"kv_num_heads", MP_ATTR_INT},
                                    {"q_num_heads", MP_ATTR_INT},
                                    {"qk_matmul_output_mode", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"softcap", MP_ATTR_FLOAT},
                                    {"softmax_precision", MP_ATTR_INT}, /* ours is never less */
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "Attention",
     .since = 23,
     .until = 24,
     .types = {{"T1", MP_FLOATS}, {"T2", MP_FLOATS}, {"U", MP_FLOATS | MP_BIT(MP_BOOL)}},
     .attrs = attrs,
     .plan = plan_attention},
};

const mp_op_family mp__family_attention = {"attention", ops, MP_COUNT_OF(ops)};
