/* paged_decode.c - see paged_decode.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_decode.h"

#include "op/attention/attention_steps.h"

/* What attention is asked for, and what it refers to. */
typedef struct asked {
    k_pages pages;
    k_cache_values codes;
    mp_attention attention;
} asked;

/* Both caches have codes of one type; what else they have is left to attention. */
static bool read_codes(const mp_paged *r, asked *out) {
    const k_paged_cache *cache = r->attention.cache;
    if (!r->coded) {
        return true;
    }
    out->codes = (k_cache_values){.channels = {cache[0].scale_each, cache[1].scale_each},
                                  .type = cache[0].code};
    out->attention.cache = &out->codes;
    out->attention.cache_scale[0] = r->scale[0];
    out->attention.cache_scale[1] = r->scale[1];
    return cache[0].code.kind == cache[1].code.kind && cache[0].code.width == cache[1].code.width;
}

/* False where entries may have different numbers of new tokens, or attention cannot be asked. */
static bool read(const mp_paged *r, asked *out) {
    const mp_paged_args *of = &r->attention;
    const k_paged *at = &of->at;
    const int64_t rows = r->query_most, size = of->head_size;
    if (r->chooses || r->latent || of->rule.blocks.size > 0 || at->block_size == 0 ||
        at->batch < 1 || r->past.place == MP_PLACE_NONE || rows < 1 || rows > at->tokens ||
        at->tokens % rows != 0 || at->tokens / rows != at->batch) {
        return false;
    }
    const int64_t row = r->coded ? of->cache[0].row : size;
    const mp_heads kept = {.stride = {0, row, at->kv_heads * row}};
    *out = (asked){.pages = {.columns = at->table_blocks,
                             .blocks = at->blocks,
                             .size = at->block_size,
                             .by_size = mp_divider((uint32_t)at->block_size)}};
    mp_attention *a = &out->attention;
    *a = (mp_attention){.type = r->type,
                        .q = {.ref = r->q, .stride = {rows * of->q_pitch, size, of->q_pitch}},
                        .k = kept,
                        .v = kept,
                        .out = mp_heads_last(MP_OUT(0), of->rule.heads, rows, of->v_head_size),
                        .head_size = size,
                        .v_head_size = of->v_head_size,
                        .rule = mp_paged_rule(r, rows, r->keys_most),
                        .lengths = r->past,
                        .sink = r->sink,
                        .debug_mode = MP_DEBUG_NONE,
                        .pages = &out->pages,
                        .table = r->table};
    a->k.ref = r->cache[0];
    a->v.ref = r->cache[1];
    a->rule.length_more = (int32_t)(at->past_more + rows);
    return read_codes(r, out);
}

mp_status mp_plan_paged_decoded(mp_planner *p, const mp_paged *r, bool *done) {
    asked all;
    *done = read(r, &all) && mp_attention_reads_pages(p, &all.attention);
    return *done ? mp_plan_attention(p, &all.attention) : MP_OK;
}
