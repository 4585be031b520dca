/* group_query.c - GroupQueryAttention of com.microsoft: heads share keys, a cache grows by each
 * token, positions rotate the heads. Four steps or more: norm Q and K, rotate them, append K and V
 * to the cache, attend. Of one new token all may be one step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_steps.h"
#include "op/attention/kv_cache_steps.h"
#include "op/attention/kv_steps.h"
#include "op/attention/kv_window_steps.h"
#include "op/attention/rotary_steps.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"
#include "op/rows/norm_steps.h"

#include <math.h>

enum {
    IN_QUERY,
    IN_KEY,
    IN_VALUE,
    IN_PAST_KEY,
    IN_PAST_VALUE,
    IN_LENGTHS, /* of each entry, less one */
    IN_TOTAL,
    IN_COSINE,
    IN_SINE,
    IN_POSITIONS,
    IN_BIAS,
    IN_SINK,
    IN_KEY_SCALE,
    IN_VALUE_SCALE,
    IN_QUERY_NORM,
    IN_KEY_NORM,
    IN_LAST
};
enum { OUT_Y, OUT_PRESENT_KEY, OUT_PRESENT_VALUE, OUT_SCORES };

typedef struct sizes {
    int64_t batch, rows, heads, kv_heads, head;
    int64_t fresh;                /* rows of key and value: as many as query has, or none */
    int64_t past, total, present; /* rows of the caches as given, in use, as made */
    int64_t window;               /* rows that the caches keep at least; 0: all */
    bool packed, prompt, normed;
    mp_kv_cache cache;
} sizes;

/* ---- what is given ---- */

/* Two inputs are given both or left out both. */
static bool is_torn(const mp_planner *p, int i, int j) {
    return (mp_plan_in(p, i) == NULL) != (mp_plan_in(p, j) == NULL);
}

static mp_status check_heads(const mp_planner *p) {
    const int64_t heads = mp_node_int(p->node, "num_heads", 0);
    const int64_t kv_heads = mp_node_int(p->node, "kv_num_heads", 0);
    return heads >= 1 && heads <= INT32_MAX && kv_heads >= 1 && heads % kv_heads == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "num_heads %lld is not a multiple of kv_num_heads %lld",
                         (long long)heads, (long long)kv_heads);
}

static mp_status check_pairs(const mp_planner *p) {
    if (is_torn(p, IN_KEY, IN_VALUE)) {
        return MP_FAIL(INVALID_ARGUMENT, "key and value must both be given or both left out");
    }
    if (is_torn(p, IN_PAST_KEY, IN_PAST_VALUE)) {
        return MP_FAIL(UNSUPPORTED, "past_key and past_value must both be given");
    }
    if (is_torn(p, IN_QUERY_NORM, IN_KEY_NORM)) {
        return MP_FAIL(INVALID_ARGUMENT, "q_norm_weight and k_norm_weight must both be given");
    }
    MP_TRY(mp_kv_cache_accept(p, p->in[IN_QUERY].type, mp_plan_in(p, IN_PAST_KEY),
                              mp_plan_in(p, IN_PAST_VALUE)));
    return !mp_node_flag(p->node, "do_rotary", false) ||
                   (mp_plan_in(p, IN_COSINE) != NULL && mp_plan_in(p, IN_SINE) != NULL)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "do_rotary needs cos_cache and sin_cache");
}

/* Needs no shapes: asked when a session is made, too. */
static mp_status accept_group_query(const mp_planner *p) {
    for (int i = IN_LAST; i < p->in_count; i++) {
        if (mp_plan_in(p, i) != NULL) {
            return MP_FAIL(UNSUPPORTED, "input %d is not supported", i);
        }
    }
    if (mp_plan_wants(p, OUT_SCORES)) {
        return MP_FAIL(UNSUPPORTED, "output_qk is not supported");
    }
    const int64_t window = mp_node_int(p->node, "local_window_size", -1);
    if (window == 0 || window > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "a local_window_size of %lld; between 1 and 2147483647 keys are possible",
                       (long long)window);
    }
    const bool keeps = mp_node_int(p->node, "sliding_window_cache", 0) != 0;
    if (keeps && (window < 0 || mp_plan_in(p, IN_BIAS) != NULL)) {
        return MP_FAIL(UNSUPPORTED, "sliding_window_cache without local_window_size, or with "
                                    "attention_bias, is not supported");
    }
    MP_TRY(check_heads(p));
    return check_pairs(p);
}

static mp_status read_query(const mp_planner *p, sizes *s) {
    const mp_tensor *key = mp_plan_in(p, IN_KEY);
    const mp_tensor *value = mp_plan_in(p, IN_VALUE);
    const mp_shape *q = &p->in[IN_QUERY].shape;
    s->heads = mp_node_int(p->node, "num_heads", 0);
    s->kv_heads = mp_node_int(p->node, "kv_num_heads", 0);
    s->packed = key == NULL;
    s->normed = mp_plan_in(p, IN_QUERY_NORM) != NULL;
    const int64_t heads = s->packed ? s->heads + 2 * s->kv_heads : s->heads;
    char text[MP_SHAPE_TEXT];
    if (q->rank != 3 || q->dim[2] % heads != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "query of shape %s for %lld heads", mp_shape_text(q, text),
                       (long long)heads);
    }
    s->batch = q->dim[0];
    s->rows = q->dim[1];
    s->head = q->dim[2] / heads;
    s->fresh = key != NULL && key->shape.rank == 3 && key->shape.dim[1] == 0 ? 0 : s->rows;
    const mp_shape want = {.rank = 3, .dim = {s->batch, s->fresh, s->kv_heads * s->head}};
    return s->packed || (mp_shape_equal(&key->shape, &want) && mp_shape_equal(&value->shape, &want))
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "key and value must be of shape %s",
                         mp_shape_text(&want, text));
}

/* As long as all tokens have room, the caches are like any other, even if the window is longer. */
static mp_status read_window(const mp_planner *p, sizes *s) {
    const int64_t window = mp_node_int(p->node, "local_window_size", -1);
    if (s->total <= s->past) {
        return MP_OK;
    }
    if (s->past < window || s->fresh < s->rows) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "sliding_window_cache: %lld tokens need new keys and values, and past ones "
                       "with room for the local_window_size, %lld, and not for %lld; give caches "
                       "of that many rows (with onnxruntime-genai: past_present_share_buffer, and "
                       "a single beam)",
                       (long long)s->total, (long long)window, (long long)s->past);
    }
    s->window = window;
    return MP_OK;
}

static mp_status read_caches(const mp_planner *p, sizes *s) {
    const mp_tensor *key = mp_plan_in(p, IN_PAST_KEY);
    const mp_tensor *value = mp_plan_in(p, IN_PAST_VALUE);
    int count = 0;
    s->past = key != NULL && key->shape.rank == 4 ? key->shape.dim[2] : 0;
    MP_TRY(mp_kv_cache_read(p, key, IN_KEY_SCALE, IN_VALUE_SCALE, s->kv_heads, s->head, &s->cache));
    const mp_shape want = {.rank = 4, .dim = {s->batch, s->kv_heads, s->past, s->cache.row}};
    if (key != NULL &&
        (!mp_shape_equal(&key->shape, &want) || !mp_shape_equal(&value->shape, &want))) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "past_key and past_value must be of shape %s",
                       mp_shape_text(&want, text));
    }
    MP_TRY(mp_host_ints(p, IN_TOTAL, "total_sequence_length", 1, &s->total, &count));
    if (count != 1 || s->total < s->rows) {
        return MP_FAIL(INVALID_ARGUMENT, "total_sequence_length is %lld for %lld new tokens",
                       (long long)(count == 1 ? s->total : 0), (long long)s->rows);
    }
    if (mp_node_int(p->node, "sliding_window_cache", 0) != 0) {
        MP_TRY(read_window(p, s));
    }
    if (s->fresh < s->rows && s->past < s->total) {
        return MP_FAIL(INVALID_ARGUMENT, "no new keys, and past ones for %lld of %lld tokens",
                       (long long)s->past, (long long)s->total);
    }
    s->present = s->window > 0 ? s->past : MP_MAX(s->past, s->total);
    s->prompt = s->total == s->rows;
    const mp_shape *lengths = &p->in[IN_LENGTHS].shape;
    return mp_shape_count(lengths) == s->batch
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "seqlens_k has %lld values for %lld entries",
                         (long long)mp_shape_count(lengths), (long long)s->batch);
}

static mp_status read_rule(const mp_planner *p, const sizes *s, mp_attention *a) {
    const mp_tensor *sink = mp_plan_in(p, IN_SINK);
    const mp_tensor *bias = mp_plan_in(p, IN_BIAS);
    const double scale = (double)mp_node_float(p->node, "scale", 0);
    const int64_t window = mp_node_int(p->node, "local_window_size", -1);
    const bool smooth = mp_node_flag(p->node, "smooth_softmax", false);
    a->rule = mp_score_rule(s->batch, s->heads, s->kv_heads, s->rows, s->total);
    a->rule.scale = scale != 0 ? scale : 1 / sqrt((double)s->head);
    a->rule.softcap = (double)mp_node_float(p->node, "softcap", 0);
    a->rule.causal = mp_node_int(p->node, "causal", 1) != 0;
    a->rule.window = MP_MAX(window, 0);
    a->rule.length_more = 1;
    a->rule.past_by_length = !s->prompt;
    a->rule.sink_kind = sink != NULL ? K_SINK_HEADS : smooth ? K_SINK_ZERO : K_SINK_NONE;
    a->lengths = MP_IN(IN_LENGTHS);
    a->sink = sink != NULL ? MP_IN(IN_SINK) : MP_NOWHERE;
    a->mask = bias != NULL ? MP_IN(IN_BIAS) : MP_NOWHERE;
    if (sink != NULL && mp_shape_count(&sink->shape) != s->heads) {
        return MP_FAIL(INVALID_ARGUMENT, "head_sink has %lld values for %lld heads",
                       (long long)mp_shape_count(&sink->shape), (long long)s->heads);
    }
    return bias != NULL ? mp_score_mask(&a->rule, bias) : MP_OK;
}

static mp_status check_norm(const mp_planner *p, int input, const char *name, int64_t head) {
    const mp_shape *weight = &p->in[input].shape;
    char text[MP_SHAPE_TEXT];
    return weight->rank == 1 && weight->dim[0] == head
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s for heads of %lld elements", name,
                         mp_shape_text(weight, text), (long long)head);
}

static mp_status check_norms(const mp_planner *p, const sizes *s) {
    MP_TRY(s->normed ? check_norm(p, IN_QUERY_NORM, "q_norm_weight", s->head) : MP_OK);
    return s->normed ? check_norm(p, IN_KEY_NORM, "k_norm_weight", s->head) : MP_OK;
}

/* ---- steps ---- */

/* Heads `first` and on of a tensor in which all heads of a token lie side by side. */
static mp_heads heads_in(mp_ref ref, const sizes *s, mp_dtype type, int64_t all, int64_t first) {
    return mp_heads_last(mp_ref_at(ref, (uint64_t)(first * s->head) * mp_dtype_size(type)), all,
                         s->rows, s->head);
}

static mp_status read_rotary(const mp_planner *p, const sizes *s, mp_rotary *r) {
    const mp_tensor *cosine = mp_plan_in(p, IN_COSINE);
    const mp_tensor *sine = mp_plan_in(p, IN_SINE);
    const mp_tensor *positions = mp_plan_in(p, IN_POSITIONS);
    if (cosine->shape.rank != 2 || !mp_shape_equal(&cosine->shape, &sine->shape) ||
        cosine->shape.dim[1] * 2 > s->head) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "cos_cache and sin_cache must be of one shape, with two dimensions and rows "
                       "of at most half a head");
    }
    if (positions != NULL && mp_shape_count(&positions->shape) != s->batch * s->rows) {
        return MP_FAIL(INVALID_ARGUMENT, "position_ids has %lld values for %lld tokens",
                       (long long)mp_shape_count(&positions->shape),
                       (long long)(s->batch * s->rows));
    }
    *r = (mp_rotary){.type = p->in[IN_QUERY].type,
                     .batch = s->batch,
                     .rows = s->rows,
                     .head_size = s->head,
                     .rotated = cosine->shape.dim[1] * 2,
                     .cosine = MP_IN(IN_COSINE),
                     .sine = MP_IN(IN_SINE),
                     .cache_rows = cosine->shape.dim[0],
                     .positions = MP_IN(positions != NULL ? IN_POSITIONS : IN_LENGTHS),
                     .position_kind = positions != NULL ? K_POSITION_GIVEN : K_POSITION_LENGTHS,
                     .prompt = s->prompt,
                     .interleaved = mp_node_flag(p->node, "rotary_interleaved", false)};
    return MP_OK;
}

/* Copies heads of a packed tensor to where they lie without gaps, as the norm wants its rows. */
static mp_status unpack(mp_planner *p, const mp_heads *side, const mp_shape *shape, mp_ref out) {
    const size_t size = mp_dtype_size(p->in[IN_QUERY].type);
    mp_strided source = {.ref = side->ref,
                         .offset = (int64_t)(side->ref.offset / size), /* what is aligned there */
                         .stride = {side->stride[0], side->stride[2], side->stride[1], 1}};
    mp_strided target = {.ref = out};
    source.ref.offset = 0;
    mp_shape_strides(shape, target.stride);
    return mp_plan_strided_copy(p, shape, size, &source, &target);
}

/* Brings heads to deviation 1 in scratch memory of their own; `side` then says where they are. */
static mp_status norm(mp_planner *p, const sizes *s, int weight, int64_t rows, int64_t heads,
                      mp_heads *side) {
    const mp_dtype type = p->in[IN_QUERY].type;
    const mp_shape shape = {.rank = 4, .dim = {s->batch, rows, heads, s->head}};
    mp_norm n = {.type = type, .out_type = type, .x = side->ref, .scale = MP_IN(weight)};
    n.args = (mp_norm_args){.rows = s->batch * rows * heads,
                            .columns = s->head,
                            .epsilon = mp_node_float(p->node, "qk_norm_epsilon", 1e-6f)};
    MP_TRY(mp_plan_scratch_shape(p, &shape, type, &n.out));
    if (s->packed) {
        MP_TRY(unpack(p, side, &shape, n.out));
        n.x = n.out;
    }
    *side = mp_heads_last(n.out, heads, rows, s->head);
    return mp_plan_norm(p, &n);
}

static mp_status norm_both(mp_planner *p, const sizes *s, mp_heads *q, mp_heads *k) {
    MP_TRY(norm(p, s, IN_QUERY_NORM, s->rows, s->heads, q));
    return s->fresh > 0 ? norm(p, s, IN_KEY_NORM, s->fresh, s->kv_heads, k) : MP_OK;
}

/* Q, K and V of the new tokens. */
static void place_fresh(const mp_planner *p, const sizes *s, mp_heads *q, mp_heads *k,
                        mp_heads *v) {
    const mp_dtype type = p->in[IN_QUERY].type;
    const int64_t all = s->packed ? s->heads + 2 * s->kv_heads : s->heads;
    *q = heads_in(MP_IN(IN_QUERY), s, type, all, 0);
    *k = s->packed ? heads_in(MP_IN(IN_QUERY), s, type, all, s->heads)
                   : heads_in(MP_IN(IN_KEY), s, type, s->kv_heads, 0);
    *v = s->packed ? heads_in(MP_IN(IN_QUERY), s, type, all, s->heads + s->kv_heads)
                   : heads_in(MP_IN(IN_VALUE), s, type, s->kv_heads, 0);
}

static mp_status scratch_heads(mp_planner *p, const sizes *s, int64_t heads, mp_heads *out) {
    const mp_shape shape = {.rank = 4, .dim = {s->batch, s->rows, heads, s->head}};
    mp_ref place;
    MP_TRY(mp_plan_scratch_shape(p, &shape, p->in[IN_QUERY].type, &place));
    *out = mp_heads_last(place, heads, s->rows, s->head);
    return MP_OK;
}

/* Rotates Q and K, in one launch where there is a kernel for that. It also puts K and V to their
 * places in the caches, where nothing else is left to do there: `*appended`. Otherwise `q` and the
 * fresh keys then say where these are. */
static mp_status rotate_fresh(mp_planner *p, const sizes *s, mp_heads *q, mp_kv_append *append,
                              bool *appended) {
    mp_rotary_append all = {.heads = {s->heads, s->fresh > 0 ? s->kv_heads : 0},
                            .x = {*q, append->fresh[0], append->fresh[1]},
                            .lengths = MP_IN(IN_LENGTHS),
                            .present_rows = s->present};
    MP_TRY(read_rotary(p, s, &all.rotary));
    *appended = s->fresh > 0 && s->window == 0 && s->cache.type == p->in[IN_QUERY].type;
    MP_TRY(scratch_heads(p, s, s->heads, &all.out[0]));
    if (*appended) {
        all.heads[2] = s->kv_heads;
        all.appends[1] = all.appends[2] = true;
        all.out[1] = mp_heads_first(append->present[0], s->kv_heads, s->present, s->head);
        all.out[2] = mp_heads_first(append->present[1], s->kv_heads, s->present, s->head);
        all.grows = !mp_kv_append_is_fresh(append);
        all.past_rows = s->past;
        memcpy(all.past, append->past, sizeof all.past);
        if (mp_can_rotary_append(p, &all)) {
            MP_TRY(all.grows ? MP_OK : mp_plan_kv_past(p, append));
            *q = all.out[0];
            return mp_plan_rotary_append(p, &all);
        }
        *appended = all.appends[1] = all.appends[2] = all.grows = false;
        all.heads[2] = 0;
    }
    if (s->fresh > 0) {
        MP_TRY(scratch_heads(p, s, s->kv_heads, &all.out[1]));
    }
    for (int side = 0; side < 2 && !mp_can_rotary_append(p, &all); side++) {
        mp_rotary one = all.rotary;
        one.heads = all.heads[side];
        one.x = all.x[side];
        one.out = all.out[side];
        MP_TRY(one.heads > 0 ? mp_plan_rotary(p, &one) : MP_OK);
    }
    *q = all.out[0];
    append->fresh[0] = s->fresh > 0 ? all.out[1] : append->fresh[0];
    return mp_can_rotary_append(p, &all) ? mp_plan_rotary_append(p, &all) : MP_OK;
}

/* Lets attention norm and rotate Q and K of a new token and put K and V to their places, where it
 * can: then `fresh` says where these are, and a->fresh is `fresh`. */
static mp_status hand_over(mp_planner *p, const sizes *s, const mp_kv_append *append,
                           mp_fresh *fresh, mp_attention *a) {
    mp_rotary r = {.rotated = s->head, .cosine = MP_NOWHERE, .sine = MP_NOWHERE, .cache_rows = 1};
    if (mp_node_flag(p->node, "do_rotary", false)) {
        MP_TRY(read_rotary(p, s, &r));
    }
    const bool given = r.position_kind == K_POSITION_GIVEN;
    *fresh = (mp_fresh){.k = append->fresh[0],
                        .v = append->fresh[1],
                        .cosine = r.cosine,
                        .sine = r.sine,
                        .positions = given ? r.positions : MP_NOWHERE,
                        .scale = {s->normed ? MP_IN(IN_QUERY_NORM) : MP_NOWHERE,
                                  s->normed ? MP_IN(IN_KEY_NORM) : MP_NOWHERE},
                        .epsilon = mp_node_float(p->node, "qk_norm_epsilon", 1e-6f),
                        .cache_rows = r.cache_rows,
                        .present_rows = s->present,
                        .prompt = s->prompt};
    mp_attention whole = *a;
    whole.k = mp_heads_first(append->present[0], s->kv_heads, s->present, s->cache.row);
    whole.v = mp_heads_first(append->present[1], s->kv_heads, s->present, s->cache.row);
    whole.fresh = fresh;
    if (s->fresh == 0 || s->window > 0 || s->cache.type != a->type || r.rotated != s->head ||
        r.interleaved || !mp_kv_append_is_fresh(append) || !mp_attention_takes_fresh(p, &whole)) {
        return MP_OK;
    }
    a->fresh = fresh;
    return mp_plan_kv_past(p, append);
}

static mp_status present_place(mp_planner *p, int output, mp_dtype type, const mp_shape *shape,
                               mp_ref *out) {
    *out = MP_OUT(output);
    MP_TRY(mp_plan_output(p, output, type, shape));
    if (mp_plan_wants(p, output)) {
        return MP_OK;
    }
    return mp_plan_scratch_shape(p, shape, type, out);
}

static mp_status plan_group_query(mp_planner *p) {
    sizes s = {.window = 0};
    const mp_dtype type = p->in[IN_QUERY].type;
    MP_TRY(accept_group_query(p));
    MP_TRY(read_query(p, &s));
    MP_TRY(read_caches(p, &s));
    MP_TRY(check_norms(p, &s));
    mp_attention a = {.type = type,
                      .head_size = s.head,
                      .v_head_size = s.head,
                      .out = mp_heads_last(MP_OUT(OUT_Y), s.heads, s.rows, s.head),
                      .debug = MP_NOWHERE,
                      .debug_mode = MP_DEBUG_NONE};
    MP_TRY(read_rule(p, &s, &a));
    const mp_shape out = {.rank = 3, .dim = {s.batch, s.rows, s.heads * s.head}};
    const mp_shape cache = {.rank = 4, .dim = {s.batch, s.kv_heads, s.present, s.cache.row}};
    const bool has_past = mp_plan_in(p, IN_PAST_KEY) != NULL;
    mp_kv_append append = {.type = s.cache.type,
                           .batch = s.batch,
                           .heads = s.kv_heads,
                           .size = {s.cache.row, s.cache.row},
                           .past = {has_past ? MP_IN(IN_PAST_KEY) : MP_NOWHERE,
                                    has_past ? MP_IN(IN_PAST_VALUE) : MP_NOWHERE},
                           .lengths = MP_IN(IN_LENGTHS),
                           .prompt = s.prompt,
                           .past_rows = s.past,
                           .past_used = s.past,
                           .fresh_rows = s.fresh,
                           .present_rows = s.present};
    MP_TRY(mp_plan_output(p, OUT_Y, type, &out));
    MP_TRY(present_place(p, OUT_PRESENT_KEY, s.cache.type, &cache, &append.present[0]));
    MP_TRY(present_place(p, OUT_PRESENT_VALUE, s.cache.type, &cache, &append.present[1]));
    place_fresh(p, &s, &a.q, &append.fresh[0], &append.fresh[1]);
    mp_fresh fresh;
    MP_TRY(hand_over(p, &s, &append, &fresh, &a));
    bool appended = a.fresh != NULL;
    MP_TRY(s.normed && !appended ? norm_both(p, &s, &a.q, &append.fresh[0]) : MP_OK);
    if (!appended && mp_node_flag(p->node, "do_rotary", false)) {
        MP_TRY(rotate_fresh(p, &s, &a.q, &append, &appended));
    }
    MP_TRY(mp_kv_cache_narrow(p, &s.cache, s.batch, s.fresh, append.fresh));
    mp_kv_window kept = {.window = s.window};
    if (s.window > 0) {
        MP_TRY(mp_plan_kv_window(p, &kept, &append));
        a.lengths = append.lengths;
        a.rule.keys = append.present_rows;
    }
    MP_TRY(appended ? MP_OK : mp_plan_kv_append(p, &append));
    a.k = mp_heads_first(append.present[0], s.kv_heads, append.present_rows, s.cache.row);
    a.v = mp_heads_first(append.present[1], s.kv_heads, append.present_rows, s.cache.row);
    MP_TRY(mp_kv_cache_widen(p, &s.cache, append.present_rows, &a));
    MP_TRY(mp_plan_attention(p, &a));
    return s.window > 0 ? mp_plan_kv_keep(p, &kept) : MP_OK;
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"causal", MP_ATTR_INT},
                                    {"do_rotary", MP_ATTR_INT},
                                    {"k_quant_type", MP_ATTR_STRING},
                                    {"kv_cache_bit_width", MP_ATTR_INT},
                                    {"kv_num_heads", MP_ATTR_INT},
                                    {"local_window_size", MP_ATTR_INT},
                                    {"num_heads", MP_ATTR_INT},
                                    {"qk_norm_epsilon", MP_ATTR_FLOAT},
                                    {"rotary_interleaved", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"sliding_window_cache", MP_ATTR_INT},
                                    {"smooth_softmax", MP_ATTR_INT},
                                    {"softcap", MP_ATTR_FLOAT},
                                    {"v_quant_type", MP_ATTR_STRING},
                                    {NULL, 0}};

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };
#define CACHE_TYPES (TYPES | MP_BIT(MP_I8) | MP_BIT(MP_U8) | MP_BIT(MP_F8E4M3FN))

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GroupQueryAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES},
               {"T_CACHE", CACHE_TYPES},
               {"T_KV_SCALE", MP_BIT(MP_F32)},
               {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_TOTAL,
     .in_place = {{IN_PAST_KEY, OUT_PRESENT_KEY}, {IN_PAST_VALUE, OUT_PRESENT_VALUE}},
     .in_place_count = 2,
     .sizes_differ = true,
     .once = "sliding_window_cache",
     .attrs = attrs,
     .plan = plan_group_query,
     .accept = accept_group_query},
};

const mp_op_family mp__family_group_query = {"group_query", ops, MP_COUNT_OF(ops)};
