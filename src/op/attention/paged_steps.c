/* paged_steps.c - attention over caches that grow in place.
 * Kernels: attention/paged_store.cu, attention/rotary_append.cu, attention/attention_paged.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_steps.h"

#include "op/attention/attention_steps.h"
#include "op/attention/paged_decode.h"
#include "op/attention/paged_gather.h"
#include "op/attention/rotary_steps.h"

k_score_rule mp_paged_rule(const mp_paged *r, int64_t rows, int64_t keys) {
    const k_score_rule *of = &r->attention.rule;
    k_score_rule rule = mp_score_rule(r->attention.at.batch, of->heads, of->kv_heads, rows, keys);
    rule.scale = of->scale;
    rule.softcap = of->softcap;
    rule.window = of->window;
    rule.causal = of->causal;
    rule.sink_kind = of->sink_kind;
    rule.past_by_length = 1;
    return rule;
}

mp_status mp_plan_paged_cache(mp_planner *p, int in, int out, mp_ref *ref) {
    const mp_tensor *cache = &p->in[in];
    size_t size = 0;
    *ref = MP_OUT(out);
    MP_TRY(mp_plan_output(p, out, cache->type, &cache->shape));
    MP_TRY(mp_shape_bytes(&cache->shape, cache->type, &size));
    return mp_plan_copy(p, MP_OUT(out), MP_IN(in), size);
}

/* ---- new tokens ---- */

static bool is_none(mp_ref ref) {
    return ref.place == MP_PLACE_NONE;
}

/* Heads of side `i` as they come. */
static mp_heads given_heads(const mp_paged *r, int i) {
    const int64_t pitch = r->store.pitch[i];
    return (mp_heads){r->x[i], {r->store.at.rows * pitch, r->store.size, pitch}};
}

/* The same as mp_plan_paged_store where rotary_append.cu has all that is asked for: caches are not
 * in blocks and nothing is normalised. That moves 16 bytes at a time. */
static mp_rotary_append as_append(const mp_paged *r) {
    const mp_paged_store_args *store = &r->store;
    const k_paged *at = &store->at;
    const bool turned = store->half > 0;
    const mp_rotary rotary = {.type = r->type,
                              .batch = at->batch,
                              .rows = at->rows,
                              .head_size = store->size,
                              .rotated = 2 * (int64_t)store->half,
                              .cosine = r->cosine,
                              .sine = r->sine,
                              .cache_rows = turned ? store->cache_rows : 1,
                              .positions = r->positions,
                              .position_kind =
                                  is_none(r->positions) ? K_POSITION_LENGTHS : K_POSITION_GIVEN,
                              .prompt = is_none(r->past),
                              .interleaved = store->interleaved};
    return (mp_rotary_append){
        .rotary = rotary,
        .heads = {store->heads[0], store->heads[1], store->heads[2]},
        .x = {given_heads(r, 0), given_heads(r, 1), given_heads(r, 2)},
        .out = {mp_heads_last(r->q, store->heads[0], at->rows, store->size),
                mp_heads_first(r->cache[0], at->kv_heads, at->capacity, store->size),
                mp_heads_first(r->cache[1], at->kv_heads, at->capacity, store->size)},
        .appends = {false, true, true},
        .lengths = r->past,
        .whole = at->past_more == -at->rows,
        .placed = true,
        .present_rows = at->capacity};
}

static bool can_append(const mp_planner *p, const mp_paged *r, const mp_rotary_append *all) {
    const mp_paged_store_args *store = &r->store;
    return store->at.block_size == 0 && store->offset == 0 && !r->coded && is_none(r->weight[0]) &&
           store->at.capacity >= store->at.rows && mp_can_rotary_append(p, all);
}

mp_status mp_plan_paged_store(mp_planner *p, mp_paged *r) {
    enum { LANES = K_PAGED_LANES };
    mp_paged_store_args *args = &r->store;
    const mp_kernel *kernel = NULL;
    const int64_t heads = args->heads[0] + args->heads[1] + args->heads[2];
    if (args->heads[0] > 0) {
        const mp_shape q = {.rank = 3, .dim = {args->at.tokens, args->heads[0], args->size}};
        MP_TRY(mp_plan_scratch_shape(p, &q, r->type, &r->q));
        r->attention.q_pitch = args->heads[0] * args->size;
    }
    const mp_rotary_append all = as_append(r);
    if (can_append(p, r, &all)) {
        return mp_plan_rotary_append(p, &all);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "paged_store_%s", mp_dtype_word(r->type)));
    const int64_t groups = LANES / K_PAGED_STORE_WIDTH;
    mp_grid grid =
        mp_plan_grid_rows(p, MP_CEIL_DIV(args->at.tokens * heads, groups), (uint32_t)LANES);
    grid.shared_bytes = (uint32_t)(groups * args->size * (int64_t)sizeof(float));
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_paged_store_args, x[0], r->x[0]),
        MP_BIND(mp_paged_store_args, x[1], r->x[1]), MP_BIND(mp_paged_store_args, x[2], r->x[2]),
        MP_BIND(mp_paged_store_args, to[0], args->heads[0] > 0 ? r->q : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, to[1], r->cache[0]),
        MP_BIND(mp_paged_store_args, to[2], args->heads[2] > 0 ? r->cache[1] : MP_NOWHERE),
        MP_BIND(mp_paged_store_args, weight[0], r->weight[0]),
        MP_BIND(mp_paged_store_args, weight[1], r->weight[1]),
        MP_BIND(mp_paged_store_args, cosine, r->cosine),
        MP_BIND(mp_paged_store_args, sine, r->sine),
        MP_BIND(mp_paged_store_args, positions, r->positions),
        MP_BIND(mp_paged_store_args, slots, r->slots),
        MP_BIND(mp_paged_store_args, at.starts, r->starts),
        MP_BIND(mp_paged_store_args, at.past, r->past),
        MP_BIND(mp_paged_store_args, at.table, r->table),
        MP_BIND(mp_paged_store_args, cache[0].scale, r->scale[0]),
        MP_BIND(mp_paged_store_args, cache[1].scale, r->scale[1]));
}

/* ---- attention ---- */

static mp_status launch(mp_planner *p, const mp_paged *r, const mp_kernel *kernel, mp_grid grid,
                        mp_ref part) {
    return MP_LAUNCH(p, kernel, grid, r->attention, MP_BIND(mp_paged_args, q, r->q),
                     MP_BIND(mp_paged_args, k, r->cache[0]), MP_BIND(mp_paged_args, v, r->cache[1]),
                     MP_BIND(mp_paged_args, out, MP_OUT(0)), MP_BIND(mp_paged_args, part, part),
                     MP_BIND(mp_paged_args, at.starts, r->starts),
                     MP_BIND(mp_paged_args, at.past, r->past),
                     MP_BIND(mp_paged_args, at.table, r->table),
                     MP_BIND(mp_paged_args, cache[0].scale, r->scale[0]),
                     MP_BIND(mp_paged_args, cache[1].scale, r->scale[1]),
                     MP_BIND(mp_paged_args, choice.indices, r->indices),
                     MP_BIND(mp_paged_args, choice.counts, r->counts),
                     MP_BIND(mp_paged_args, choice.lengths, r->lengths),
                     MP_BIND(mp_paged_args, choice.key, r->beside[0]),
                     MP_BIND(mp_paged_args, choice.value, r->beside[1]),
                     MP_BIND(mp_paged_args, rule.lengths, r->key_lengths),
                     MP_BIND(mp_paged_args, rule.blocks.starts, r->block_starts),
                     MP_BIND(mp_paged_args, rule.blocks.columns, r->block_columns),
                     MP_BIND(mp_paged_args, rule.sink, r->sink));
}

/* What the blocks have found in their shares of the keys, as the heads of one entry. */
static mp_status combine(mp_planner *p, const mp_paged *r, mp_ref part) {
    const mp_paged_args *of = &r->attention;
    const mp_kernel *kernel = NULL;
    mp_grid grid;
    mp_attention_args args = {.splits = of->splits,
                              .v_head_size = of->v_head_size,
                              .out_stride = {0, of->v_head_size, of->out_pitch},
                              .rule = of->rule};
    args.rule.batch = 1;
    args.rule.rows = of->at.tokens;
    MP_TRY(mp_plan_attention_combine(p, r->type, &args, &kernel, &grid));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_attention_args, out, MP_OUT(0)),
                     MP_BIND(mp_attention_args, part, part),
                     MP_BIND(mp_attention_args, rule.sink, r->sink));
}

/* Into how many shares keys are split, so that all multiprocessors have some. The blocks know how
 * many there are; `keys` is what there may be at most. */
static int64_t splits_of(const mp_planner *p, int64_t units, int64_t keys) {
    enum { BLOCKS_WANTED = 4, KEYS_MIN = 64, MOST = 64 };
    const int64_t wanted = (int64_t)p->device->info.multiprocessors * BLOCKS_WANTED / units;
    return MP_MAX(MP_MIN(MP_MIN(wanted, keys / KEYS_MIN), MOST), 1);
}

mp_status mp_plan_paged_attention(mp_planner *p, mp_paged *r) {
    bool done = false;
    MP_TRY(mp_plan_paged_decoded(p, r, &done));
    if (done) {
        return MP_OK;
    }
    if (mp_paged_gathers(r)) {
        return mp_plan_paged_gathered(p, r);
    }
    mp_paged_args *args = &r->attention;
    const k_score_rule *rule = &args->rule;
    const int64_t size = MP_MAX(args->head_size, args->v_head_size);
    const bool longer = size > 32 * K_PAGED_PIECE, blocks = rule->blocks.size > 0;
    const bool alone = blocks && rule->blocks.layouts > 1; /* heads see other keys */
    const bool single =
        r->chooses || blocks || r->query_most <= 1 || args->at.tokens <= args->at.batch;
    const int rows = longer ? 2 : (rule->group == 1 || alone) && single ? 1 : 4;
    args->tokens_at_once = (int32_t)(single || rule->group >= rows ? 1 : rows / rule->group);
    args->heads_at_once = alone ? 1 : rows;
    args->group_lanes = 1;
    while ((int64_t)args->group_lanes * K_PAGED_PIECE * (longer ? 3 : 1) < size) {
        args->group_lanes *= 2;
    }
    args->groups = K_PAGED_LANES / args->group_lanes;
    const int64_t pieces = MP_CEIL_DIV(args->at.tokens, (int64_t)args->tokens_at_once);
    const int64_t units =
        pieces * rule->kv_heads * MP_CEIL_DIV(rule->group, (int64_t)args->heads_at_once);
    args->splits = splits_of(p, units, r->keys_most);
    const int64_t pitch = args->v_head_size + K_ATTENTION_STATE;
    mp_ref part = MP_NOWHERE;
    if (args->splits > 1) {
        const mp_shape shape = {.rank = 3,
                                .dim = {rule->heads * args->at.tokens, args->splits, pitch}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &part));
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_%s_%s_%s_%s",
                          blocks       ? "blocks"
                          : r->chooses ? "chosen"
                                       : "paged",
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
