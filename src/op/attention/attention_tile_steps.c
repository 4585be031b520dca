/* attention_tile_steps.c - attention by tiles in shared memory, of any head that fits, also where
 * some tokens see all.
 * Kernels: attention/attention_tile.cu, attention/token_list.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_products.h"
#include "op/attention/attention_ways.h"

enum { TILE_LANES = 256, TILE_SHARED_WANTED = 112 << 10 /* leaves room for a second block */ };

/* Shared memory of attention_tile.cu, whose first comment is the list. */
static size_t tile_bytes(const mp_attention *a, int64_t rows, int64_t keys) {
    const int64_t head = (a->head_size + 7) / 8 * 8;
    const int64_t value = (a->v_head_size + 7) / 8 * 8;
    const int64_t k = head * (keys + 4);
    const int64_t v = keys * value;
    const int64_t floats = head * (rows + 4) + MP_MAX(k, v) + keys * (rows + 4) + rows * value +
                           rows * 7 /* top, total, shrink, part */;
    const int64_t seen = a->rule.blocks.size > 0 ? K_TILE_WINDOW * K_TILE_SEEN_WORDS : 0;
    return (size_t)(floats * 4 + rows * (2 * 8 + 2 * 4) + seen * 4);
}

/* The largest tiles that leave room for a second block, or that fit at all. */
static size_t choose_tile(const mp_planner *p, const mp_attention *a, mp_attention_args *args) {
    static const int32_t sides[][2] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16},
                                       {16, 32}, {16, 16}, {8, 16},  {8, 8},   {4, 4}};
    const size_t room = p->device->info.shared_bytes_max;
    for (size_t i = 0; i < MP_COUNT_OF(sides); i++) {
        const size_t bytes = tile_bytes(a, sides[i][0], sides[i][1]);
        if (bytes <= room && (bytes <= TILE_SHARED_WANTED || i + 1 == MP_COUNT_OF(sides))) {
            args->tile_rows = sides[i][0];
            args->tile_keys = sides[i][1];
            return bytes;
        }
    }
    return 0;
}

mp_status mp_plan_attention_tiles(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    mp_attention_args args = mp_attention_args_of(p, a);
    const size_t bytes = choose_tile(p, a, &args);
    if (bytes == 0) {
        return mp_plan_attention_products(p, a);
    }
    const int64_t row_tiles = MP_CEIL_DIV(rule->group * rule->rows, args.tile_rows);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_tile_%s%s", rule->blocks.size > 0 ? "blocks_" : "",
                          mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, rule->batch * rule->kv_heads * row_tiles, TILE_LANES);
    grid.shared_bytes = (uint32_t)bytes;
    return mp_attention_launch(p, a, kernel, grid, &args, MP_NOWHERE);
}

/* ---- listed tokens ---- */

/* Which tokens are marked: [batch, rows], and how many of each entry. */
static mp_status plan_list(mp_planner *p, const k_score_rule *rule, mp_ref flags, mp_ref *list,
                           mp_ref *count) {
    enum { LANES = 256 };
    const mp_shape shape = {.rank = 2, .dim = {rule->batch, rule->rows}};
    const mp_token_list_args args = {.batch = rule->batch, .rows = rule->rows};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I32, list));
    MP_TRY(mp_plan_scratch_of(p, rule->batch, MP_I32, count));
    MP_TRY(mp_plan_kernel(p, &kernel, "token_list"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, rule->batch, LANES), args,
                     MP_BIND(mp_token_list_args, flags, flags),
                     MP_BIND(mp_token_list_args, list, *list),
                     MP_BIND(mp_token_list_args, list_count, *count));
}

mp_status mp_plan_attention_listed(mp_planner *p, const mp_attention *a, const mp_listed *own) {
    const k_score_rule *rule = &a->rule;
    mp_listed_args args = {.attention = mp_attention_args_of(p, a)};
    const size_t bytes = choose_tile(p, a, &args.attention);
    const mp_kernel *kernel = NULL;
    mp_ref list = MP_NOWHERE;
    mp_ref count = MP_NOWHERE;
    if (bytes == 0 || rule->keys > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "%lld rows in heads of %lld elements; a tile of four rows must "
                       "fit into the %zu bytes that a block may share",
                       (long long)rule->keys, (long long)a->head_size,
                       p->device->info.shared_bytes_max);
    }
    args.attention.wide = args.attention.wide && own->q.offset % 16 == 0 &&
                          own->k.offset % 16 == 0 && own->v.offset % 16 == 0;
    MP_TRY(plan_list(p, rule, own->flags, &list, &count));
    const int64_t tiles = MP_CEIL_DIV(rule->rows, args.attention.tile_rows);
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_tile_listed_%s", mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, 2 * rule->batch * rule->heads * tiles, TILE_LANES);
    grid.shared_bytes = (uint32_t)bytes;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_listed_args, attention.q, a->q.ref),
                     MP_BIND(mp_listed_args, attention.k, a->k.ref),
                     MP_BIND(mp_listed_args, attention.v, a->v.ref),
                     MP_BIND(mp_listed_args, attention.out, a->out.ref),
                     MP_BIND(mp_listed_args, attention.rule.mask, a->mask),
                     MP_BIND(mp_listed_args, q, own->q), MP_BIND(mp_listed_args, k, own->k),
                     MP_BIND(mp_listed_args, v, own->v), MP_BIND(mp_listed_args, flags, own->flags),
                     MP_BIND(mp_listed_args, list, list),
                     MP_BIND(mp_listed_args, list_count, count));
}
