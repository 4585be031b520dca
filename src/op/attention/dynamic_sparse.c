/* dynamic_sparse.c - DynamicSparseAttention of com.microsoft: tokens of a batch attend to those of
 * its cache that they have chosen, or to the last ones of it and to chosen keys beside it.
 *
 * An entry with fewer tokens than there are new ones begins with the first of these.
 * Kernels: attention/paged_store.cu, attention/attention_paged.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_read.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <string.h>

enum {
    IN_PAST_KEY = 3,
    IN_PAST_VALUE,
    IN_BESIDE_KEY,
    IN_BESIDE_VALUE,
    IN_INDICES,
    IN_COUNTS,
    IN_LENGTHS, /* of each entry, less one */
    IN_TOTAL,
    IN_COSINE,
    IN_SINE,
    IN_POSITIONS,
    IN_Q_NORM,
    IN_K_NORM,
    IN_SINK
};

/* ---- what is given ---- */

static mp_status refuse(const mp_planner *p, int i, const char *name, const char *why) {
    const mp_tensor *given = mp_plan_in(p, i);
    char text[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s: %s", name,
                   given != NULL ? mp_shape_text(&given->shape, text) : "none", why);
}

/* Needs no shapes: asked when a session is made, too. */
static mp_status accept_dynamic(const mp_planner *p) {
    const char *mode = mp_node_string(p->node, "attention_mode", "selected_only");
    const char *source = mp_node_string(p->node, "selected_kv_source", "main");
    const bool main = strcmp(mode, "selected_only") == 0 && strcmp(source, "main") == 0;
    const bool beside =
        strcmp(mode, "local_plus_selected") == 0 && strcmp(source, "auxiliary") == 0;
    const int64_t window = mp_node_int(p->node, "local_window_size", -1);
    if (!main && !beside) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "attention_mode is \"%.40s\" and selected_kv_source \"%.40s\"; they can be "
                       "selected_only and main, or local_plus_selected and auxiliary",
                       mode, source);
    }
    if (mp_node_int(p->node, "is_causal", 1) != 1 || (beside && window < 1)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "is_causal is %lld and local_window_size %lld; the first must be 1, and "
                       "where attention_mode is local_plus_selected the second above 0",
                       (long long)mp_node_int(p->node, "is_causal", 1), (long long)window);
    }
    return MP_OK;
}

static mp_status read_lengths(const mp_planner *p, mp_paged *r) {
    const mp_shape *lengths = &p->in[IN_LENGTHS].shape;
    const mp_tensor *positions = mp_plan_in(p, IN_POSITIONS);
    k_paged *at = &r->store.at;
    int64_t total = 0;
    int count = 0;
    MP_TRY(mp_host_ints(p, IN_TOTAL, "total_sequence_length", 1, &total, &count));
    const bool has_past = mp_plan_in(p, IN_PAST_KEY) != NULL;
    if (count != 1 || total < at->rows || (has_past && total > at->capacity)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "total_sequence_length is %lld for %lld new tokens and caches of %lld",
                       (long long)(count == 1 ? total : 0), (long long)at->rows,
                       (long long)at->capacity);
    }
    if (lengths->rank != 1 || lengths->dim[0] != at->batch) {
        return refuse(p, IN_LENGTHS, "seqlens_k", "it needs a number for each entry");
    }
    const mp_shape places = {.rank = 2, .dim = {at->batch, at->rows}};
    if (positions != NULL && !mp_shape_equal(&positions->shape, &places)) {
        return refuse(p, IN_POSITIONS, "position_ids", "it needs a number for each token");
    }
    at->capacity = has_past ? at->capacity : total;
    at->past_more = 1 - at->rows;
    r->past = MP_IN(IN_LENGTHS);
    r->positions = positions != NULL ? MP_IN(IN_POSITIONS) : MP_NOWHERE;
    r->keys_most = total;
    return MP_OK;
}

/* Keys and values beside the cache. */
static mp_status read_beside(const mp_planner *p, mp_paged *r) {
    const mp_tensor *key = mp_plan_in(p, IN_BESIDE_KEY), *value = mp_plan_in(p, IN_BESIDE_VALUE);
    const bool shared = mp_node_int(p->node, "auxiliary_kv_shared", 0) != 0;
    k_paged_choice *choice = &r->attention.choice;
    const k_paged *at = &r->store.at;
    const int64_t tokens = key != NULL && key->shape.rank == 4 ? key->shape.dim[2] : 0;
    const mp_shape want = {.rank = 4, .dim = {at->batch, at->kv_heads, tokens, r->store.size}};
    if (key == NULL || !mp_shape_equal(&key->shape, &want)) {
        return refuse(p, IN_BESIDE_KEY, "auxiliary_key",
                      "it needs entries, kv_num_heads heads, tokens and the elements of a head");
    }
    if (value != NULL ? !mp_shape_equal(&value->shape, &want) : !shared) {
        return refuse(
            p, IN_BESIDE_VALUE, "auxiliary_value",
            "it needs the shape of auxiliary_key, and only where auxiliary_kv_shared is 1 "
            "may it be left out");
    }
    *choice = (k_paged_choice){.beside = true,
                               .local = true,
                               .heads = at->kv_heads,
                               .heads_first = true,
                               .capacity = tokens};
    r->beside[0] = MP_IN(IN_BESIDE_KEY);
    r->beside[1] = value != NULL ? MP_IN(IN_BESIDE_VALUE) : MP_IN(IN_BESIDE_KEY);
    return MP_OK;
}

static mp_status read_choice(const mp_planner *p, mp_paged *r) {
    const mp_shape *indices = &p->in[IN_INDICES].shape, *counts = &p->in[IN_COUNTS].shape;
    const int64_t tokens = r->store.at.tokens;
    k_score_rule *rule = &r->attention.rule;
    const bool beside = strcmp(mp_node_string(p->node, "selected_kv_source", "main"), "main") != 0;
    if (indices->rank != 2 || indices->dim[0] != tokens) {
        return refuse(p, IN_INDICES, "selected_indices", "it needs a row for each token");
    }
    if (counts->rank != 1 || counts->dim[0] != tokens) {
        return refuse(p, IN_COUNTS, "selected_counts", "it needs a number for each token");
    }
    if (!beside &&
        (mp_plan_in(p, IN_BESIDE_KEY) != NULL || mp_plan_in(p, IN_BESIDE_VALUE) != NULL)) {
        return refuse(p, IN_BESIDE_KEY, "auxiliary_key",
                      "it must be left out where selected_kv_source is main, with auxiliary_value");
    }
    r->chooses = true;
    rule->causal = true;
    rule->window = beside ? mp_node_int(p->node, "local_window_size", -1) : 0;
    if (rule->sink_kind == K_SINK_NONE && mp_node_flag(p->node, "smooth_softmax", false)) {
        rule->sink_kind = K_SINK_ZERO;
    }
    if (beside) {
        MP_TRY(read_beside(p, r));
    }
    r->attention.choice.most = indices->dim[1];
    r->indices = MP_IN(IN_INDICES);
    r->counts = MP_IN(IN_COUNTS);
    r->keys_most = indices->dim[1] + (beside ? MP_MIN(rule->window, r->keys_most) : 0);
    return MP_OK;
}

/* ---- steps ---- */

/* The memory that a cache grows in: what was there before, or 0. */
static mp_status keep(mp_planner *p, const mp_paged *r, int in, int out, mp_ref *ref) {
    const k_paged *at = &r->store.at;
    const mp_shape shape = {.rank = 4,
                            .dim = {at->batch, at->kv_heads, at->capacity, r->store.size}};
    size_t bytes = 0;
    *ref = MP_OUT(out);
    MP_TRY(mp_plan_output(p, out, r->type, &shape));
    MP_TRY(mp_shape_bytes(&shape, r->type, &bytes));
    if (bytes == 0) {
        return MP_OK;
    }
    if (!mp_plan_wants(p, out)) {
        MP_TRY(mp_plan_scratch_shape(p, &shape, r->type, ref));
    }
    return mp_plan_in(p, in) != NULL ? mp_plan_copy(p, *ref, MP_IN(in), bytes)
                                     : mp_plan_fill(p, *ref, 0, 1, bytes);
}

static mp_status plan_dynamic(mp_planner *p) {
    mp_paged r = {.type = p->in[MP_PAGED_QUERY].type};
    MP_TRY(accept_dynamic(p));
    MP_TRY(mp_paged_read_heads(p, &r));
    MP_TRY(mp_paged_read_dense(p, &r));
    MP_TRY(read_lengths(p, &r));
    MP_TRY(read_choice(p, &r));
    r.attention.at = r.store.at;
    const mp_shape *q = &p->in[MP_PAGED_QUERY].shape;
    const mp_shape out = {.rank = 3, .dim = {q->dim[0], q->dim[1], r.attention.out_pitch}};
    MP_TRY(mp_plan_output(p, 0, r.type, &out));
    MP_TRY(keep(p, &r, IN_PAST_KEY, 1, &r.cache[0]));
    MP_TRY(keep(p, &r, IN_PAST_VALUE, 2, &r.cache[1]));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_paged_store(p, &r));
    return mp_plan_paged_attention(p, &r);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"num_heads", MP_ATTR_INT},
                                    {"kv_num_heads", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"attention_mode", MP_ATTR_STRING},
                                    {"selected_kv_source", MP_ATTR_STRING},
                                    {"auxiliary_kv_shared", MP_ATTR_INT},
                                    {"is_causal", MP_ATTR_INT},
                                    {"local_window_size", MP_ATTR_INT},
                                    {"smooth_softmax", MP_ATTR_INT},
                                    {"do_rotary", MP_ATTR_INT},
                                    {"rotary_interleaved", MP_ATTR_INT},
                                    {"rotary_offset", MP_ATTR_INT},
                                    {"qk_norm_epsilon", MP_ATTR_FLOAT},
                                    {NULL, 0}};

enum { NONE = MP_PAGED_ABSENT };
static const mp_paged_order order = {.at = {0, 1, 2, IN_PAST_KEY, IN_PAST_VALUE, NONE, NONE, NONE,
                                            IN_COSINE, IN_SINE, NONE, IN_SINK, IN_Q_NORM, IN_K_NORM,
                                            NONE, NONE, NONE},
                                     .chooses = true,
                                     .dense = true};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "DynamicSparseAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16}, {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_TOTAL,
     .in_place = {{IN_PAST_KEY, 1}, {IN_PAST_VALUE, 2}},
     .in_place_count = 2,
     .attrs = attrs,
     .plan = plan_dynamic,
     .accept = accept_dynamic,
     .detail = &order},
};

const mp_op_family mp__family_dynamic_sparse = {"dynamic_sparse", ops, MP_COUNT_OF(ops)};
