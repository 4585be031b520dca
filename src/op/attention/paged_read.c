/* paged_read.c - what a node of PagedAttention or SparsePagedAttention asks for, and what others
 * share with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_read.h"

#include "op/core/host_input.h"
#include "op/pointwise/narrow.h"

#include <math.h>

mp_status mp_paged_no_fit(const mp_planner *p, const char *why) {
    char q[MP_SHAPE_TEXT], cache[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "query of shape %s and a cache of keys of shape %s: %s",
                   mp_shape_text(&p->in[MP_PAGED_QUERY].shape, q),
                   mp_shape_text(&p->in[MP_PAGED_K_CACHE].shape, cache), why);
}

static const mp_paged_order *order_of(const mp_planner *p) {
    return (const mp_paged_order *)p->node->op->detail;
}

static const mp_tensor *in(const mp_planner *p, int role) {
    return mp_plan_in(p, mp_paged_at(p, role));
}

static mp_ref ref(const mp_planner *p, int role) {
    return in(p, role) != NULL ? MP_IN(mp_paged_at(p, role)) : MP_NOWHERE;
}

/* Whether input `i` is one line of `count`, or absent. */
static bool is_line(const mp_planner *p, int i, int64_t count) {
    return in(p, i) == NULL || (in(p, i)->shape.rank == 1 && in(p, i)->shape.dim[0] == count);
}

/* ---- heads ---- */

static mp_status read_layout(const mp_planner *p, mp_paged *r) {
    const char *layout = mp_node_string(p->node, "kv_cache_layout", "SEPARATE");
    r->latent = strcmp(layout, "LATENT") == 0;
    if (!r->latent && strcmp(layout, "SEPARATE") != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "kv_cache_layout is \"%.40s\"; it can be SEPARATE or LATENT", layout);
    }
    if (r->latent != (in(p, MP_PAGED_V_CACHE) == NULL) ||
        (r->latent && (in(p, MP_PAGED_VALUE) != NULL || in(p, MP_PAGED_KEY) == NULL))) {
        return mp_paged_no_fit(
            p, "values and a cache of them must be left out just where kv_cache_layout "
               "is LATENT, and then keys must be given");
    }
    return MP_OK;
}

/* Queries, keys and values: apart, or behind each other in each row. */
static mp_status read_rows(const mp_planner *p, mp_paged *r) {
    const mp_shape *q = &p->in[MP_PAGED_QUERY].shape;
    const mp_tensor *key = in(p, MP_PAGED_KEY), *value = in(p, MP_PAGED_VALUE);
    const int64_t heads = mp_node_int(p->node, "num_heads", 0);
    const int64_t kv = mp_node_int(p->node, "kv_num_heads", 0);
    const bool packed = key == NULL;
    if (heads < 1 || kv < 1 || heads % kv != 0 || heads > INT32_MAX || (r->latent && kv != 1)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "num_heads is %lld and kv_num_heads %lld; the first must be a multiple of "
                       "the second, and the second 1 where kv_cache_layout is LATENT",
                       (long long)heads, (long long)kv);
    }
    const int64_t all = packed ? heads + 2 * kv : heads;
    const int rank = order_of(p)->dense ? 3 : 2;
    const int64_t width = q->rank == rank ? q->dim[rank - 1] : -1, size = width / all;
    mp_shape rows = *q;
    rows.dim[rank - 1] = kv * size;
    if (q->rank != rank || size * all != width || (packed && value != NULL) ||
        (!packed && !r->latent && value == NULL) ||
        (key != NULL && !mp_shape_equal(&key->shape, &rows)) ||
        (value != NULL && !mp_shape_equal(&value->shape, &rows))) {
        return mp_paged_no_fit(p, "they must be rows of num_heads heads with a key and a value of "
                                  "kv_num_heads heads beside them, or with those behind them");
    }
    const uint64_t head_bytes = (uint64_t)size * mp_dtype_size(r->type);
    r->x[0] = r->q = MP_IN(MP_PAGED_QUERY);
    r->x[1] = packed ? mp_ref_at(r->x[0], (uint64_t)heads * head_bytes) : MP_IN(MP_PAGED_KEY);
    r->x[2] = packed      ? mp_ref_at(r->x[0], (uint64_t)(heads + kv) * head_bytes)
              : r->latent ? MP_NOWHERE
                          : MP_IN(MP_PAGED_VALUE);
    r->store.pitch[0] = width;
    r->store.pitch[1] = r->store.pitch[2] = packed ? width : kv * size;
    r->store.heads[1] = kv;
    r->store.heads[2] = r->latent ? 0 : kv;
    if (size > K_PAGED_HEAD_MAX) {
        return MP_FAIL(UNSUPPORTED, "heads of %lld elements; up to %d are supported",
                       (long long)size, K_PAGED_HEAD_MAX);
    }
    r->store.size = r->attention.head_size = (int32_t)size;
    r->attention.q_pitch = width;
    r->store.at.tokens = rank == 3 ? q->dim[0] * q->dim[1] : q->dim[0];
    r->store.at.kv_heads = (int32_t)kv;
    r->attention.rule.heads = heads;
    r->attention.rule.kv_heads = kv;
    r->attention.rule.group = heads / kv;
    return MP_OK;
}

static mp_status read_values(const mp_planner *p, mp_paged *r) {
    const int64_t size = r->store.size;
    const int64_t asked = mp_node_int(p->node, "v_head_size", 0);
    const int64_t value = asked == 0 ? size : asked;
    const mp_attr *scale = mp_node_attr(p->node, "scale");
    if (value < 0 || value > size || (value != size && (!r->latent || scale == NULL))) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "v_head_size is %lld for heads of %lld; only where kv_cache_layout is "
                       "LATENT can it be less, and then the scale must be given",
                       (long long)asked, (long long)size);
    }
    r->attention.v_head_size = (int32_t)value;
    r->attention.out_pitch = r->attention.rule.heads * value;
    const float given = scale != NULL ? scale->f : 0;
    r->attention.rule.scale = (double)(given != 0 ? given : 1 / sqrtf((float)size));
    return MP_OK;
}

mp_status mp_paged_read_heads(const mp_planner *p, mp_paged *out) {
    MP_TRY(read_rows(p, out));
    MP_TRY(read_values(p, out));
    out->attention.wide = p->align >= 16 && out->store.size % K_PAGED_PIECE == 0 &&
                          out->attention.v_head_size % K_PAGED_PIECE == 0;
    return MP_OK;
}

/* ---- caches ---- */

static const struct {
    const char *name;
    mp_dtype holder, type; /* of the tensor; of what it holds */
} codes[] = {{"int8", MP_I8, MP_I8},
             {"float8e4m3fn", MP_F8E4M3FN, MP_F8E4M3FN},
             {"int4", MP_U8, MP_I4},
             {"float4e2m1", MP_U8, MP_F4E2M1}};

/* Elements, or codes of a type that the tensor's or an attribute says. */
static mp_status read_code(const mp_planner *p, mp_paged *r, int i, const char *attr,
                           k_paged_cache *cache) {
    const mp_dtype holder = p->in[i].type;
    const char *word = mp_node_string(p->node, attr, "");
    cache->row = r->store.size * (int32_t)mp_dtype_size(r->type);
    if (holder == r->type && (word[0] == '\0' || strcmp(word, mp_dtype_name(holder)) == 0)) {
        return MP_OK;
    }
    for (size_t n = 0; n < MP_COUNT_OF(codes); n++) {
        const bool said = strcmp(word, codes[n].name) == 0;
        const bool meant = word[0] == '\0' && codes[n].holder == codes[n].type;
        if (codes[n].holder == holder && (said || meant)) {
            cache->code = mp_narrow(codes[n].type, (mp_narrowing){.saturate = true});
            cache->row = (r->store.size * cache->code.width + 7) / 8;
            r->coded = true;
            return MP_OK;
        }
    }
    return MP_FAIL(
        INVALID_ARGUMENT,
        "a cache of %s for queries of %s with %s \"%.40s\"; it can have their type, int8 "
        "or float8e4m3fn, or uint8 with a name of int4 or float4e2m1",
        mp_dtype_name(holder), mp_dtype_name(r->type), attr, word);
}

/* The scales of codes. */
static mp_status read_scale(const mp_planner *p, const mp_paged *r, int i, const char *attr,
                            k_paged_cache *cache) {
    const char *word = mp_node_string(p->node, attr, "NONE");
    const bool coded = cache->code.width != 0, none = strcmp(word, "NONE") == 0;
    const mp_tensor *scale = in(p, i);
    const int64_t count = scale != NULL ? mp_shape_count(&scale->shape) : 0;
    cache->scale_each = strcmp(word, "PER_CHANNEL") == 0;
    const int64_t want = cache->scale_each ? (int64_t)r->store.at.kv_heads * r->store.size : 1;
    if (none == coded || (scale != NULL) != coded || (coded && count != want) ||
        (!none && !cache->scale_each && strcmp(word, "PER_TENSOR") != 0)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s is \"%.40s\" with %lld scales; a cache of codes needs PER_TENSOR with "
                       "one or PER_CHANNEL with one for each element of its heads, any other NONE",
                       attr, word, (long long)count);
    }
    return MP_OK;
}

static mp_status read_caches(const mp_planner *p, mp_paged *r) {
    k_paged_cache *cache = r->store.cache;
    const mp_shape *k = &p->in[MP_PAGED_K_CACHE].shape;
    MP_TRY(read_code(p, r, MP_PAGED_K_CACHE, "k_cache_dtype", &cache[0]));
    MP_TRY(read_scale(p, r, MP_PAGED_K_SCALE, "k_quant_type", &cache[0]));
    const int v = r->latent ? MP_PAGED_K_CACHE : MP_PAGED_V_CACHE;
    cache[1] = cache[0];
    if (!r->latent) {
        cache[1] = (k_paged_cache){.scale = NULL};
        MP_TRY(read_code(p, r, MP_PAGED_V_CACHE, "v_cache_dtype", &cache[1]));
        MP_TRY(read_scale(p, r, MP_PAGED_V_SCALE, "v_quant_type", &cache[1]));
    }
    const int64_t width = (int64_t)mp_dtype_size(r->type);
    const int64_t columns = cache[0].row / (r->coded ? 1 : width);
    if (k->rank != 4 || k->dim[1] < 1 || k->dim[1] > INT32_MAX ||
        k->dim[2] != r->store.at.kv_heads || k->dim[3] != columns ||
        !mp_shape_equal(k, &p->in[v].shape) || p->in[v].type != p->in[MP_PAGED_K_CACHE].type) {
        return mp_paged_no_fit(
            p, "the caches need one shape of blocks, tokens of a block, kv_num_heads and "
               "as much as a head takes");
    }
    r->scale[0] = ref(p, MP_PAGED_K_SCALE);
    r->scale[1] = ref(p, r->latent ? MP_PAGED_K_SCALE : MP_PAGED_V_SCALE);
    r->store.at.blocks = k->dim[0];
    r->store.at.block_size = (int32_t)k->dim[1];
    return MP_OK;
}

/* ---- lengths and the rest ---- */

static mp_status read_tables(const mp_planner *p, mp_paged *r) {
    const mp_shape *starts = &p->in[MP_PAGED_STARTS].shape, *table = &p->in[MP_PAGED_TABLE].shape;
    k_paged *at = &r->store.at;
    at->batch = starts->rank == 1 ? starts->dim[0] - 1 : -1;
    if (at->batch < 0 || !is_line(p, MP_PAGED_PAST, at->batch) || table->rank != 2 ||
        table->dim[0] != at->batch || !is_line(p, MP_PAGED_SLOTS, at->tokens)) {
        return mp_paged_no_fit(
            p, "cumulative_sequence_length needs a number more than there are requests, "
               "past_seqlens one and block_table a row for each, slot_mapping a number "
               "for each token");
    }
    at->table_blocks = table->dim[1];
    r->starts = MP_IN(MP_PAGED_STARTS);
    r->past = MP_IN(MP_PAGED_PAST);
    r->table = MP_IN(MP_PAGED_TABLE);
    r->slots = ref(p, MP_PAGED_SLOTS);
    enum { BOUNDS_MOST = 5 };
    int64_t bound[BOUNDS_MOST] = {0};
    int count = 0;
    MP_TRY(mp_host_ints(p, mp_paged_at(p, MP_PAGED_BOUNDS), "attention_metadata", BOUNDS_MOST,
                        bound, &count));
    r->query_most = bound[0] > 0 ? bound[0] : at->tokens;
    r->keys_most = at->blocks > 0 ? at->table_blocks * at->block_size : 0;
    r->keys_most = bound[1] > 0 && bound[1] < r->keys_most ? bound[1] : r->keys_most;
    return MP_OK;
}

/* Queries are copied for norms and rotary positions. */
static mp_status read_turns(const mp_planner *p, mp_paged *r) {
    const bool turned = mp_node_int(p->node, "do_rotary", 0) != 0;
    const bool normed = in(p, MP_PAGED_Q_NORM) != NULL;
    const mp_tensor *cosine = in(p, MP_PAGED_COSINE), *sine = in(p, MP_PAGED_SINE);
    mp_paged_store_args *store = &r->store;
    if (normed != (in(p, MP_PAGED_K_NORM) != NULL) || !is_line(p, MP_PAGED_Q_NORM, store->size) ||
        !is_line(p, MP_PAGED_K_NORM, store->size)) {
        return mp_paged_no_fit(
            p, "q_norm_weight and k_norm_weight need a number for each element of a head, "
               "both or none of them");
    }
    r->weight[0] = ref(p, MP_PAGED_Q_NORM);
    r->weight[1] = ref(p, MP_PAGED_K_NORM);
    store->epsilon = mp_node_float(p->node, "qk_norm_epsilon", 1e-6f);
    store->heads[0] = turned || normed ? r->attention.rule.heads : 0;
    if (!turned) {
        return MP_OK;
    }
    const int64_t offset = mp_node_int(p->node, "rotary_offset", 0);
    if (cosine == NULL || sine == NULL || cosine->shape.rank != 2 || cosine->shape.dim[0] < 1 ||
        !mp_shape_equal(&cosine->shape, &sine->shape) || offset < 0 || offset > store->size ||
        cosine->shape.dim[1] > (store->size - offset) / 2) {
        return mp_paged_no_fit(
            p, "do_rotary needs cos_cache and sin_cache of one shape, with a row for each "
               "position that fits a head behind rotary_offset");
    }
    r->cosine = ref(p, MP_PAGED_COSINE);
    r->sine = ref(p, MP_PAGED_SINE);
    store->cache_rows = cosine->shape.dim[0];
    store->half = (int32_t)cosine->shape.dim[1];
    store->offset = (int32_t)offset;
    store->interleaved = mp_node_int(p->node, "rotary_interleaved", 0) != 0;
    return MP_OK;
}

mp_status mp_paged_read_changes(const mp_planner *p, mp_paged *out) {
    k_score_rule *rule = &out->attention.rule;
    MP_TRY(read_turns(p, out));
    out->sink = ref(p, MP_PAGED_SINK);
    rule->sink_kind = in(p, MP_PAGED_SINK) != NULL ? K_SINK_HEADS : K_SINK_NONE;
    return is_line(p, MP_PAGED_SINK, rule->heads)
               ? MP_OK
               : mp_paged_no_fit(p, "head_sink needs a number for each head");
}

/* ---- caches that are not in blocks ---- */

mp_status mp_paged_read_dense(const mp_planner *p, mp_paged *out) {
    const mp_shape *q = &p->in[MP_PAGED_QUERY].shape;
    const mp_tensor *key = in(p, MP_PAGED_K_CACHE), *value = in(p, MP_PAGED_V_CACHE);
    k_paged *at = &out->store.at;
    at->batch = q->dim[0];
    at->rows = q->dim[1];
    at->capacity = key != NULL && key->shape.rank == 4 ? key->shape.dim[2] : 0;
    const mp_shape want = {.rank = 4,
                           .dim = {at->batch, at->kv_heads, at->capacity, out->store.size}};
    if ((key == NULL) != (value == NULL) ||
        (key != NULL &&
         (!mp_shape_equal(&key->shape, &want) || !mp_shape_equal(&value->shape, &want)))) {
        return mp_paged_no_fit(
            p, "past_key and past_value need entries, kv_num_heads heads, tokens and the "
               "elements of a head");
    }
    for (int side = 0; side < 2; side++) {
        out->store.cache[side].row = out->store.size * (int32_t)mp_dtype_size(out->type);
        out->attention.cache[side] = out->store.cache[side];
    }
    return mp_paged_read_changes(p, out);
}

/* ---- all ---- */

mp_status mp_paged_read_node(const mp_planner *p, mp_paged *out) {
    *out = (mp_paged){.type = p->in[MP_PAGED_QUERY].type};
    MP_TRY(read_layout(p, out));
    MP_TRY(mp_paged_read_heads(p, out));
    MP_TRY(read_caches(p, out));
    MP_TRY(read_tables(p, out));
    MP_TRY(mp_paged_read_changes(p, out));
    k_score_rule *rule = &out->attention.rule;
    const int64_t window = mp_node_int(p->node, "local_window_size", -1);
    rule->window = MP_MAX(window, 0);
    rule->causal = mp_node_int(p->node, "is_causal", 1) != 0;
    rule->softcap = (double)mp_node_float(p->node, "softcap", 0);
    out->attention.at = out->store.at;
    memcpy(out->attention.cache, out->store.cache, sizeof out->store.cache);
    out->chooses = order_of(p)->chooses;
    return out->chooses ? mp_paged_read_choice(p, out) : MP_OK;
}
