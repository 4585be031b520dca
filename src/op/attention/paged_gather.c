/* paged_gather.c - see paged_gather.h.
 *
 * Where entries have different numbers of new tokens, queries get padding before them, so that the
 * last one of each is that of its last key, and results lose it again.
 * Kernel: attention/paged_gather.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_gather.h"

#include "op/attention/attention_steps.h"
#include "op/attention/padding_steps.h"

/* The most rows of an entry, the keys of each, and the elements of all keys and of all queries, or
 * INT64_MAX where they are too many to be counted. */
typedef struct sizes {
    int64_t rows, keys, kept, asked;
} sizes;

static int64_t product(int64_t a, int64_t b) {
    int64_t all = 0;
    return __builtin_mul_overflow(a, b, &all) ? INT64_MAX : all;
}

static sizes sizes_of(const mp_paged *r) {
    const mp_paged_args *of = &r->attention;
    const k_paged *at = &of->at;
    const bool known = r->query_most > 0 && r->query_most >= MP_CEIL_DIV(at->tokens, at->batch);
    const int64_t rows = known ? MP_MIN(r->query_most, at->tokens) : at->tokens;
    const int64_t heads = product(at->batch, at->kv_heads);
    return (sizes){.rows = rows,
                   .keys = r->keys_most,
                   .kept = product(product(heads, r->keys_most), of->head_size),
                   .asked = product(product(at->batch, rows), of->q_pitch)};
}

static bool is_full(const mp_paged *r, const sizes *s) {
    return product(s->rows, r->attention.at.batch) == r->attention.at.tokens;
}

bool mp_paged_gathers(const mp_paged *r) {
    enum {
        WORK_MIN = 1 << 22,
        ROOM = 1 << 27 /* keys, queries: half a GiB, with values and results */
    };
    const mp_paged_args *of = &r->attention;
    if (r->chooses || r->latent || of->rule.blocks.size > 0 || of->at.block_size == 0 ||
        of->at.batch < 1 || !of->wide || of->head_size > K_ATTENTION_HEAD_MAX) {
        return false;
    }
    const sizes s = sizes_of(r);
    const double work = (double)of->at.tokens * (double)of->rule.heads * (double)s.keys *
                        (double)(of->head_size + of->v_head_size);
    return work > (double)WORK_MIN && s.keys <= INT32_MAX / 2 && s.kept <= ROOM &&
           (is_full(r, &s) || s.asked <= ROOM - s.kept);
}

/* ---- its steps ---- */

static mp_status gather(mp_planner *p, const mp_paged *r, const sizes *s, mp_ref to[2],
                        mp_ref *lengths) {
    const mp_paged_args *of = &r->attention;
    const k_paged *at = &of->at;
    const int64_t across = (int64_t)at->kv_heads * of->head_size / K_PAGED_PIECE;
    const int64_t count = at->batch * s->keys * across;
    const mp_shape shape = {.rank = 4, .dim = {at->batch, s->keys, at->kv_heads, of->head_size}};
    mp_paged_gather_args args = {.keys = s->keys,
                                 .size = of->head_size,
                                 .wide = count > INT32_MAX,
                                 .by_across = mp_divider((uint32_t)across),
                                 .by_keys = mp_divider((uint32_t)s->keys),
                                 .at = *at,
                                 .cache = {of->cache[0], of->cache[1]}};
    const mp_kernel *kernel = NULL;
    for (int side = 0; side < 2; side++) {
        MP_TRY(mp_plan_scratch_shape(p, &shape, r->type, &to[side]));
    }
    MP_TRY(mp_plan_scratch_of(p, at->batch, MP_I32, lengths));
    MP_TRY(mp_plan_kernel(p, &kernel, "paged_gather_%s_%s", r->coded ? "narrow" : "own",
                          mp_dtype_word(r->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_paged_gather_args, from[0], r->cache[0]),
                     MP_BIND(mp_paged_gather_args, from[1], r->cache[1]),
                     MP_BIND(mp_paged_gather_args, to[0], to[0]),
                     MP_BIND(mp_paged_gather_args, to[1], to[1]),
                     MP_BIND(mp_paged_gather_args, lengths, *lengths),
                     MP_BIND(mp_paged_gather_args, at.starts, r->starts),
                     MP_BIND(mp_paged_gather_args, at.past, r->past),
                     MP_BIND(mp_paged_gather_args, at.table, r->table),
                     MP_BIND(mp_paged_gather_args, cache[0].scale, r->scale[0]),
                     MP_BIND(mp_paged_gather_args, cache[1].scale, r->scale[1]));
}

/* Rows of all entries get their padding, or lose it. */
static mp_status pad(mp_planner *p, const mp_paged *r, const sizes *s, k_rows_kind kind,
                     int64_t width, mp_ref from, mp_ref to) {
    const k_paged *at = &r->attention.at;
    const int64_t all = at->batch * s->rows;
    const mp_padding rows = {.type = r->type,
                             .kind = kind,
                             .batch = at->batch,
                             .length = s->rows,
                             .width = width,
                             .given = kind == K_ROWS_PADDED ? at->tokens : all,
                             .rows = kind == K_ROWS_PADDED ? all : at->tokens,
                             .before = true,
                             .count = 1,
                             .x = {from},
                             .out = {to},
                             .starts = r->starts};
    return mp_plan_padding(p, &rows);
}

static mp_attention attention_of(const mp_paged *r, const sizes *s, const mp_ref keys[2],
                                 mp_ref lengths) {
    const mp_paged_args *of = &r->attention;
    const k_score_rule *rule = &of->rule;
    const int64_t size = of->head_size;
    return (mp_attention){.type = r->type,
                          .k = mp_heads_last(keys[0], rule->kv_heads, s->keys, size),
                          .v = mp_heads_last(keys[1], rule->kv_heads, s->keys, size),
                          .head_size = size,
                          .v_head_size = size,
                          .rule = mp_paged_rule(r, s->rows, s->keys),
                          .lengths = lengths,
                          .sink = r->sink,
                          .debug_mode = MP_DEBUG_NONE};
}

mp_status mp_plan_paged_gathered(mp_planner *p, const mp_paged *r) {
    const mp_paged_args *of = &r->attention;
    mp_ref keys[2], lengths, q = r->q, out = MP_OUT(0);
    const sizes s = sizes_of(r);
    const bool full = is_full(r, &s);
    MP_TRY(gather(p, r, &s, keys, &lengths));
    if (!full) {
        const int64_t rows = of->at.batch * s.rows;
        MP_TRY(mp_plan_scratch_of(p, rows * of->q_pitch, r->type, &q));
        MP_TRY(mp_plan_scratch_of(p, rows * of->out_pitch, r->type, &out));
        MP_TRY(pad(p, r, &s, K_ROWS_PADDED, of->q_pitch, r->q, q));
    }
    mp_attention a = attention_of(r, &s, keys, lengths);
    a.q = (mp_heads){.ref = q, .stride = {s.rows * of->q_pitch, of->head_size, of->q_pitch}};
    a.out = mp_heads_last(out, of->rule.heads, s.rows, of->v_head_size);
    MP_TRY(mp_plan_attention(p, &a));
    return full ? MP_OK : pad(p, r, &s, K_ROWS_PACKED, of->out_pitch, out, MP_OUT(0));
}
