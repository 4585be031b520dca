/* paged.c - PagedAttention and SparsePagedAttention of com.microsoft: a packed batch, caches in
 * blocks that grow in place, tokens that see all keys or choose some.
 *
 * The caches that come out are those that came in, where the memory is the same; otherwise they are
 * copied first. A model that leaves them out wants its inputs changed, which no plan does.
 * Kernels: attention/paged_store.cu, attention/attention_paged.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_read.h"
#include "op/core/families.h"

#include <string.h>

/* ---- new tokens ---- */

static mp_ref given(const mp_planner *p, int role) {
    const int i = mp_paged_at(p, role);
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* The memory that a cache grows in. */
static mp_status take_cache(mp_planner *p, int in, int out, mp_ref *ref) {
    const mp_tensor *cache = &p->in[in];
    size_t size = 0;
    *ref = MP_OUT(out);
    MP_TRY(mp_plan_output(p, out, cache->type, &cache->shape));
    MP_TRY(mp_shape_bytes(&cache->shape, cache->type, &size));
    return mp_plan_copy(p, MP_OUT(out), MP_IN(in), size);
}

static mp_status store(mp_planner *p, mp_paged_read *r) {
    enum { LANES = K_PAGED_LANES };
    mp_paged_store_args *args = &r->store;
    const mp_kernel *kernel = NULL;
    const int64_t heads = args->heads[0] + args->heads[1] + args->heads[2];
    if (args->heads[0] > 0) {
        const mp_shape q = {.rank = 3, .dim = {args->at.tokens, args->heads[0], args->size}};
        MP_TRY(mp_plan_scratch_shape(p, &q, r->type, &r->q));
        r->attention.q_pitch = args->heads[0] * args->size;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "paged_store_%s", mp_dtype_word(r->type)));
    const int64_t groups = LANES / K_PAGED_STORE_WIDTH;
    mp_grid grid =
        mp_plan_grid_rows(p, MP_CEIL_DIV(args->at.tokens * heads, groups), (uint32_t)LANES);
    grid.shared_bytes = (uint32_t)(groups * args->size * (int64_t)sizeof(float));
    const bool turned = mp_node_int(p->node, "do_rotary", 0) != 0;
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_paged_store_args, x[0], r->x[0]),
        MP_BIND(mp_paged_store_args, x[1], r->x[1]), MP_BIND(mp_paged_store_args, x[2], r->x[2]),
        MP_BIND(mp_paged_store_args, to[0], args->heads[0] > 0 ? r->q : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, to[1], r->cache[0]),
        MP_BIND(mp_paged_store_args, to[2], args->heads[2] > 0 ? r->cache[1] : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, weight[0], given(p, MP_PAGED_Q_NORM)),
        MP_BIND(mp_paged_store_args, weight[1], given(p, MP_PAGED_K_NORM)),
        MP_BIND(mp_paged_store_args, cosine, turned ? given(p, MP_PAGED_COSINE) : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, sine, turned ? given(p, MP_PAGED_SINE) : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, slots, given(p, MP_PAGED_SLOTS)),
        MP_BIND(mp_paged_store_args, at.starts, MP_IN(MP_PAGED_STARTS)),
        MP_BIND(mp_paged_store_args, at.past, MP_IN(MP_PAGED_PAST)),
        MP_BIND(mp_paged_store_args, at.table, MP_IN(MP_PAGED_TABLE)),
        MP_BIND(mp_paged_store_args, cache[0].scale, given(p, MP_PAGED_K_SCALE)),
        MP_BIND(mp_paged_store_args, cache[1].scale, given(p, MP_PAGED_V_SCALE)));
}

/* ---- attention ---- */

static mp_status launch(mp_planner *p, const mp_paged_read *r, const mp_kernel *kernel,
                        mp_grid grid, mp_ref part) {
    const mp_ref values = r->latent ? r->cache[0] : r->cache[1];
    const int v_scale = r->latent ? MP_PAGED_K_SCALE : MP_PAGED_V_SCALE;
    return MP_LAUNCH(p, kernel, grid, r->attention, MP_BIND(mp_paged_args, q, r->q),
                     MP_BIND(mp_paged_args, k, r->cache[0]), MP_BIND(mp_paged_args, v, values),
                     MP_BIND(mp_paged_args, out, MP_OUT(0)), MP_BIND(mp_paged_args, part, part),
                     MP_BIND(mp_paged_args, at.starts, MP_IN(MP_PAGED_STARTS)),
                     MP_BIND(mp_paged_args, at.past, MP_IN(MP_PAGED_PAST)),
                     MP_BIND(mp_paged_args, at.table, MP_IN(MP_PAGED_TABLE)),
                     MP_BIND(mp_paged_args, cache[0].scale, given(p, MP_PAGED_K_SCALE)),
                     MP_BIND(mp_paged_args, cache[1].scale, given(p, v_scale)),
                     MP_BIND(mp_paged_args, choice.indices, r->indices),
                     MP_BIND(mp_paged_args, choice.counts, r->counts),
                     MP_BIND(mp_paged_args, choice.lengths, r->lengths),
                     MP_BIND(mp_paged_args, choice.key, r->beside[0]),
                     MP_BIND(mp_paged_args, choice.value, r->beside[1]),
                     MP_BIND(mp_paged_args, rule.sink, given(p, MP_PAGED_SINK)));
}

/* What the blocks have found in their shares of the keys, as the heads of one entry. */
static mp_status combine(mp_planner *p, const mp_paged_read *r, mp_ref part) {
    const mp_paged_args *of = &r->attention;
    const mp_kernel *kernel = NULL;
    mp_attention_args args = {.splits = of->splits,
                              .v_head_size = of->v_head_size,
                              .out_stride = {0, of->v_head_size, of->out_pitch},
                              .rule = of->rule};
    args.rule.batch = 1;
    args.rule.rows = of->at.tokens;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_combine_%s", mp_dtype_word(r->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, of->at.tokens * of->rule.heads * of->v_head_size, 1), args,
        MP_BIND(mp_attention_args, out, MP_OUT(0)), MP_BIND(mp_attention_args, part, part),
        MP_BIND(mp_attention_args, rule.sink, given(p, MP_PAGED_SINK)));
}

/* Into how many shares keys are split, so that all multiprocessors have some. The blocks know how
 * many there are; `keys` is what there may be at most. */
static int64_t splits_of(const mp_planner *p, int64_t units, int64_t keys) {
    enum { BLOCKS_WANTED = 4, KEYS_MIN = 64, MOST = 64 };
    const int64_t wanted = (int64_t)p->device->info.multiprocessors * BLOCKS_WANTED / units;
    return MP_MAX(MP_MIN(MP_MIN(wanted, keys / KEYS_MIN), MOST), 1);
}

static mp_status attend(mp_planner *p, mp_paged_read *r) {
    mp_paged_args *args = &r->attention;
    const k_score_rule *rule = &args->rule;
    const int64_t size = MP_MAX(args->head_size, args->v_head_size);
    const bool longer = size > 32 * K_PAGED_PIECE;
    const bool chooses = ((const mp_paged_order *)p->node->op->detail)->chooses;
    const bool single = chooses || r->query_most <= 1 || args->at.tokens <= args->at.batch;
    const int rows = longer ? 2 : rule->group == 1 && single ? 1 : 4;
    args->tokens_at_once = (int32_t)(single || rule->group >= rows ? 1 : rows / rule->group);
    args->group_lanes = 1;
    while ((int64_t)args->group_lanes * K_PAGED_PIECE * (longer ? 3 : 1) < size) {
        args->group_lanes *= 2;
    }
    args->groups = K_PAGED_LANES / args->group_lanes;
    const int64_t pieces = MP_CEIL_DIV(args->at.tokens, (int64_t)args->tokens_at_once);
    const int64_t units = pieces * rule->kv_heads * MP_CEIL_DIV(rule->group, (int64_t)rows);
    args->splits = splits_of(p, units, r->keys_most);
    const int64_t pitch = args->v_head_size + K_ATTENTION_STATE;
    mp_ref part = MP_NOWHERE;
    if (args->splits > 1) {
        const mp_shape shape = {.rank = 3,
                                .dim = {rule->heads * args->at.tokens, args->splits, pitch}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &part));
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_%s_%s_%s_%s", chooses ? "chosen" : "paged",
                          r->coded ? "narrow" : "own",
                          longer      ? "long"
                          : rows == 1 ? "1"
                                      : "4",
                          mp_dtype_word(r->type)));
    mp_grid grid = mp_plan_grid_rows(p, units * args->splits, K_PAGED_LANES);
    grid.shared_bytes = (uint32_t)(args->groups * rows * pitch * (int64_t)sizeof(float));
    MP_TRY(launch(p, r, kernel, grid, part));
    return args->splits > 1 ? combine(p, r, part) : MP_OK;
}

static mp_status accept_paged(const mp_planner *p) {
    const bool values = mp_plan_in(p, MP_PAGED_V_CACHE) != NULL;
    return mp_plan_wants(p, 1) && (!values || mp_plan_wants(p, 2))
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "caches that grow as inputs alone; the outputs key_cache_out "
                                      "and value_cache_out are needed");
}

static mp_status plan_paged(mp_planner *p) {
    mp_paged_read r;
    MP_TRY(accept_paged(p));
    MP_TRY(mp_paged_read_node(p, &r));
    const mp_shape out = {.rank = 2, .dim = {r.attention.at.tokens, r.attention.out_pitch}};
    MP_TRY(mp_plan_output(p, 0, r.type, &out));
    MP_TRY(take_cache(p, MP_PAGED_K_CACHE, 1, &r.cache[0]));
    if (!r.latent) {
        MP_TRY(take_cache(p, MP_PAGED_V_CACHE, 2, &r.cache[1]));
    }
    if (mp_shape_count(&out) == 0 || r.attention.head_size == 0) {
        return MP_OK;
    }
    MP_TRY(store(p, &r));
    return attend(p, &r);
}

/* ---- the row ---- */

/* What both have. */
#define ATTRS_OF_BOTH                                                                    \
    {"num_heads", MP_ATTR_INT}, {"kv_num_heads", MP_ATTR_INT}, {"scale", MP_ATTR_FLOAT}, \
        {"softcap", MP_ATTR_FLOAT}, {"local_window_size", MP_ATTR_INT},                  \
        {"is_causal", MP_ATTR_INT}, {"do_rotary", MP_ATTR_INT},                          \
        {"rotary_interleaved", MP_ATTR_INT}, {"rotary_offset", MP_ATTR_INT},             \
        {"qk_norm_epsilon", MP_ATTR_FLOAT}, {"k_quant_type", MP_ATTR_STRING}, {          \
        "v_quant_type", MP_ATTR_STRING                                                   \
    }

static const mp_attr_def attrs[] = {ATTRS_OF_BOTH,
                                    {"k_cache_dtype", MP_ATTR_STRING},
                                    {"v_cache_dtype", MP_ATTR_STRING},
                                    {"kv_cache_layout", MP_ATTR_STRING},
                                    {"v_head_size", MP_ATTR_INT},
                                    {NULL, 0}};
static const mp_attr_def attrs_sparse[] = {ATTRS_OF_BOTH,
                                           {"attention_mode", MP_ATTR_STRING},
                                           {"selected_kv_source", MP_ATTR_STRING},
                                           {"auxiliary_kv_shared", MP_ATTR_INT},
                                           {NULL, 0}};

enum {
    TYPES = 1u << MP_F16 | 1u << MP_BF16,
    CACHES = TYPES | 1u << MP_I8 | 1u << MP_U8 | 1u << MP_F8E4M3FN
};

static const mp_paged_order order_all = {
    .at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const mp_paged_order order_chosen = {
    .at = {0, 1, 2, 3, 4, 5, 6, 7, 14, 15, 8, 16, 17, 18, 19, 20, 21}, .chooses = true};

enum { BOUNDS_CHOSEN = 21 };

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "SparsePagedAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES},
               {"T_CACHE", TYPES | 1u << MP_I8},
               {"T_KV_SCALE", MP_BIT(MP_F32)},
               {"S", MP_BIT(MP_I32)}},
     .host_in = 1u << BOUNDS_CHOSEN,
     .in_place = {{MP_PAGED_K_CACHE, 1}, {MP_PAGED_V_CACHE, 2}},
     .in_place_count = 2,
     .attrs = attrs_sparse,
     .plan = plan_paged,
     .accept = accept_paged,
     .detail = &order_chosen},
    {.domain = "com.microsoft",
     .name = "PagedAttention",
     .since = 1,
     .until = 1,
     .types =
         {{"T", TYPES}, {"T_CACHE", CACHES}, {"T_KV_SCALE", MP_BIT(MP_F32)}, {"S", MP_BIT(MP_I32)}},
     .host_in = 1u << MP_PAGED_BOUNDS,
     .in_place = {{MP_PAGED_K_CACHE, 1}, {MP_PAGED_V_CACHE, 2}},
     .in_place_count = 2,
     .attrs = attrs,
     .plan = plan_paged,
     .accept = accept_paged,
     .detail = &order_all},
};

const mp_op_family mp__family_paged = {"paged", ops, MP_COUNT_OF(ops)};
