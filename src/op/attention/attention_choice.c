/* attention_choice.c - which way attention goes, by its shape: few queries (bound by reading keys),
 * tensor cores for types of two bytes and, where the work is large and TF32 allowed, for float,
 * tiles in shared memory, and products by library math where the work is large.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_products.h"
#include "op/attention/attention_ways.h"
#include "op/attention/block_mask.h"

enum {
    FEW_ROWS_MAX = 16,       /* queries of a key head, beyond which tiles are better */
    BLOCK_QUERIES_MIN = 32,  /* the same for queries that see blocks; fewer leave too few tiles */
    FUSED_WORK_MAX = 1 << 21 /* multiplications, beyond which tensor cores pay */
};

static bool can_fuse(const mp_attention *a) {
    return a->type != MP_F64 && a->debug_mode == MP_DEBUG_NONE &&
           a->head_size <= K_ATTENTION_HEAD_MAX && a->v_head_size <= K_ATTENTION_HEAD_MAX &&
           a->rule.keys <= INT32_MAX;
}

typedef enum way { FEW, MMA, TILES, PRODUCTS } way;

/* Whether heads alone fill the device with some rows each, which tensor cores then do sooner,
 * unless keys have to be unpacked for that. */
static bool are_many(const mp_planner *p, const mp_attention *a) {
    enum { ROWS_MIN = 5, UNITS_EACH = 2 }; /* units of a multiprocessor */
    const k_score_rule *rule = &a->rule;
    return (a->cache == NULL || !mp_attention_can_decode(p, a)) &&
           rule->group * rule->rows >= ROWS_MIN &&
           rule->batch * rule->kv_heads >= (int64_t)UNITS_EACH * p->device->info.multiprocessors;
}

static way choose_way(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    if (rule->blocks.size > 0) {
        return TILES;
    }
    const int32_t asked = p->node->options.sdpa_kernel;
    const int32_t usable = a->exact ? MP_SDPA_ALL & ~MP_SDPA_PRODUCTS : MP_SDPA_ALL;
    const int32_t allowed = (asked & usable) != 0 ? asked & usable : usable;
    const double rows = (double)rule->batch * (double)rule->heads * (double)rule->rows;
    const bool counted = rows <= (double)INT32_MAX; /* by attention_few.cu */
    const bool few = counted && rule->group * rule->rows <= FEW_ROWS_MAX;
    const double work = rows * (double)rule->keys * (double)(a->head_size + a->v_head_size);
    const bool large = work > (double)FUSED_WORK_MAX;
    const bool tiles = (allowed & MP_SDPA_TILES) != 0;
    const bool products = (allowed & MP_SDPA_PRODUCTS) != 0;
    const bool mma = can_fuse(a) && mp_attention_can_mma(p, a) && (a->type != MP_F32 || large);
    if (tiles && mma && (!few || are_many(p, a) || (allowed & MP_SDPA_FEW) == 0)) {
        return MMA;
    }
    if (!can_fuse(a) || allowed == MP_SDPA_PRODUCTS || (products && !few && (large || !tiles))) {
        return PRODUCTS;
    }
    return (allowed & MP_SDPA_FEW) != 0 && counted && (few || !tiles) ? FEW : TILES;
}

bool mp_attention_takes_blocks(const mp_attention *a) {
    return can_fuse(a) && a->rule.rows >= BLOCK_QUERIES_MIN;
}

bool mp_attention_reads_cache(const mp_planner *p, const mp_attention *a) {
    return choose_way(p, a) == FEW;
}

bool mp_attention_reads_pieces(const mp_planner *p, const mp_attention *a) {
    return choose_way(p, a) == FEW && a->cache == NULL && a->pages == NULL &&
           mp_attention_is_wide(p, a);
}

bool mp_attention_takes_fresh(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const mp_fresh *fresh = a->fresh;
    mp_attention rows = *a;
    rows.k = fresh->k;
    rows.v = fresh->v;
    return rule->batch * rule->heads > 0 && rule->rows == 1 && rule->keys > 0 &&
           fresh->cache_rows > 0 && fresh->present_rows <= INT32_MAX / 2 &&
           (a->head_size == 64 || a->head_size == 128) && rule->mask_kind == K_MASK_NONE &&
           mp_attention_is_wide(p, &rows) && choose_way(p, a) == FEW &&
           mp_attention_can_decode(p, a);
}

bool mp_attention_reads_pages(const mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    return rule->batch * rule->heads > 0 && rule->keys > 0 &&
           rule->group * rule->rows <= FEW_ROWS_MAX && mp_attention_can_decode(p, a);
}

mp_status mp_plan_attention(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const mp_shape out = {.rank = 4, .dim = {rule->batch, rule->heads, rule->rows, a->v_head_size}};
    const int64_t count = mp_shape_count(&out);
    if (count == 0) {
        return MP_OK;
    }
    if (rule->keys == 0) {
        const size_t size = mp_dtype_size(a->type);
        return mp_plan_fill(p, a->out.ref, 0, MP_MIN(size, 4),
                            (size_t)count * (size < 4 ? 1 : size / 4));
    }
    if (a->pages != NULL) {
        return mp_plan_attention_decode(p, a);
    }
    if (mp_attention_can_group_blocks(p, a)) {
        return mp_plan_attention_group_blocks(p, a);
    }
    if (mp_blocks_as_mask(p, a)) {
        mp_attention masked = *a;
        MP_TRY(mp_plan_block_mask(p, &masked));
        return mp_plan_attention_mma(p, &masked);
    }
    switch (choose_way(p, a)) {
    case FEW:
        return mp_attention_can_decode(p, a) ? mp_plan_attention_decode(p, a)
                                             : mp_plan_attention_few(p, a);
    case MMA:
        return mp_plan_attention_mma(p, a);
    case TILES:
        return mp_plan_attention_tiles(p, a);
    default:
        return mp_plan_attention_products(p, a);
    }
}
