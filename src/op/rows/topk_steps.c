/* topk_steps.c - the largest or smallest elements of rows. A few of many are found by
 * topk_few_steps.c. Short rows are sorted in shared memory; of long ones the first k elements are
 * selected digit by digit and then sorted, by a network where they are few and by digits where they
 * are many. Equal elements come in the order of their indices; a NaN counts as the largest.
 * Kernels: rows/select.cu, rows/select_digit.cu, rows/topk_emit.cu, rows/topk_short.cu,
 * rows/topk_words.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/topk_steps.h"

#include "op/move/strided_copy.h"
#include "op/rows/key_bits.h"
#include "op/rows/sort_steps.h"
#include "op/rows/topk_few_steps.h"

enum { TILE_MIN = 8192 };

/* ---- rows that fit shared memory ---- */

/* Words of key and place are sorted in registers; wider keys and their places in shared memory. */
static mp_grid short_grid(const mp_planner *p, const mp_topk_short_args *args, bool words,
                          size_t key_bytes) {
    enum { WARP = 32, LANES_MAX = 1024 };
    const uint32_t padded = (uint32_t)args->padded;
    const uint32_t lanes = words ? padded / K_WORDS_EACH : MP_MIN(padded / 2, LANES_MAX);
    mp_grid grid = mp_plan_grid_rows(p, args->rows, MP_MAX(lanes, WARP));
    const size_t word = MP_MAX(key_bytes, sizeof(uint16_t)) * 2;
    const size_t apart = K_WORDS_EACH * (grid.lanes * word + K_WORDS_GAP);
    grid.shared_bytes = (uint32_t)(words ? apart : padded * (sizeof(uint64_t) + sizeof(uint32_t)));
    return grid;
}

static mp_status sort_short(mp_planner *p, const mp_topk *t, int64_t columns, mp_ref pairs) {
    const mp_kernel *kernel = NULL;
    const int bits = mp_order_bits(t->dtype);
    const bool words = bits <= 32;
    mp_topk_short_args args = {.rows = t->rows.rows,
                               .columns = columns,
                               .k = t->k,
                               .row = t->rows.columns,
                               .padded = K_WORDS_EACH,
                               .order = t->order};
    while (args.padded < columns) {
        args.padded *= 2;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, words ? "topk_words_b%d" : "topk_short_b%d", bits));
    return MP_LAUNCH(p, kernel, short_grid(p, &args, words, (size_t)bits / 8), args,
                     MP_BIND(mp_topk_short_args, x, t->x),
                     MP_BIND(mp_topk_short_args, pairs, pairs),
                     MP_BIND(mp_topk_short_args, values, t->values),
                     MP_BIND(mp_topk_short_args, indices, t->indices));
}

/* ---- long rows ---- */

static mp_status emit(mp_planner *p, const mp_topk *t, const mp_sort_list *list) {
    const mp_kernel *kernel = NULL;
    const mp_topk_emit_args args = {
        .count = t->rows.rows * t->k, .k = t->k, .row = t->rows.columns, .words = list->words};
    MP_TRY(mp_plan_kernel(p, &kernel, "topk_emit_b%d", mp_order_bits(t->dtype)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_topk_emit_args, x, t->x),
                     MP_BIND(mp_topk_emit_args, entries, list->entries),
                     MP_BIND(mp_topk_emit_args, values, t->values),
                     MP_BIND(mp_topk_emit_args, indices, t->indices));
}

typedef struct selection {
    mp_select_args args;
    const mp_kernel *kernel;
    mp_ref x, entries, state, counts, below, same;
} selection;

static mp_status select_stage(mp_planner *p, selection *s, int32_t stage) {
    mp_grid grid = mp_plan_grid_rows(p, s->args.rows * s->args.tiles, K_SELECT_LANES);
    grid.shared_bytes = K_DIGITS * sizeof(uint32_t);
    s->args.stage = stage;
    return MP_LAUNCH(
        p, s->kernel, grid, s->args, MP_BIND(mp_select_args, x, s->x),
        MP_BIND(mp_select_args, entries, s->entries), MP_BIND(mp_select_args, state, s->state),
        MP_BIND(mp_select_args, counts, s->counts), MP_BIND(mp_select_args, below, s->below),
        MP_BIND(mp_select_args, same, s->same));
}

/* The k-th key of each row, from its top digit down. */
static mp_status find_last(mp_planner *p, selection *s, int bits) {
    const mp_kernel *digit = NULL;
    const mp_ref counts = s->counts;
    const int64_t of_digit = s->args.rows * K_DIGITS * (int64_t)sizeof(int64_t);
    MP_TRY(mp_plan_kernel(p, &digit, "select_digit"));
    MP_TRY(mp_plan_fill(p, counts, 0, 4, (size_t)(of_digit / 4 * (bits / 8))));
    mp_select_digit_args args = {.rows = s->args.rows, .k = s->args.k};
    const mp_grid grid = mp_plan_grid_rows(p, args.rows, K_DIGITS);
    for (int shift = bits - 8; shift >= 0; shift -= 8) {
        s->counts = mp_ref_at(counts, (uint64_t)(of_digit * (shift / 8)));
        s->args.shift = shift;
        args.shift = shift;
        args.first = shift == bits - 8;
        MP_TRY(select_stage(p, s, K_SELECT_DIGIT));
        MP_TRY(MP_LAUNCH(p, digit, grid, args, MP_BIND(mp_select_digit_args, state, s->state),
                         MP_BIND(mp_select_digit_args, counts, s->counts)));
    }
    return MP_OK;
}

/* Entries of the first k of each row, in the order of the row. */
static mp_status select_entries(mp_planner *p, const mp_topk *t, mp_sort_list *list) {
    const mp_rows r = t->rows;
    const int64_t tiles =
        mp_row_pieces(r.rows, r.columns, p->device->info.multiprocessors, TILE_MIN);
    selection s = {.x = t->x,
                   .args = {.rows = r.rows,
                            .columns = r.columns,
                            .k = t->k,
                            .tiles = tiles,
                            .tile = MP_CEIL_DIV(r.columns, tiles),
                            .order = t->order,
                            .words = list->words}};
    size_t per_tile = 0, per_digit = 0;
    const int bits = list->bits;
    MP_TRY(mp_plan_kernel(p, &s.kernel, "select_b%d", bits));
    MP_TRY(mp_plan_bytes(r.rows * tiles, MP_I64, &per_tile));
    MP_TRY(mp_plan_bytes(r.rows * K_DIGITS * (bits / 8), MP_I64, &per_digit));
    MP_TRY(mp_plan_scratch(p, (size_t)r.rows * sizeof(k_select_state), &s.state));
    MP_TRY(mp_plan_scratch(p, per_digit, &s.counts));
    MP_TRY(mp_plan_scratch(p, per_tile, &s.below));
    MP_TRY(mp_plan_scratch(p, per_tile, &s.same));
    s.entries = list->entries;
    MP_TRY(find_last(p, &s, bits));
    MP_TRY(select_stage(p, &s, K_SELECT_TALLY));
    MP_TRY(mp_plan_scan_counts(p, s.below, r.rows, tiles, MP_NOWHERE));
    MP_TRY(mp_plan_scan_counts(p, s.same, r.rows, tiles, MP_NOWHERE));
    return select_stage(p, &s, K_SELECT_WRITE);
}

static mp_status sort_long(mp_planner *p, const mp_topk *t) {
    const bool by_network = t->sorted && t->k <= K_SORT_SHORT; /* which takes pairs */
    const int bits = mp_order_bits(t->dtype);
    mp_sort_list list = {.rows = t->rows.rows,
                         .columns = t->k,
                         .bits = bits,
                         .words = !by_network && mp_sort_in_words(bits, t->rows.columns)};
    MP_TRY(mp_plan_sort_memory(p, &list));
    MP_TRY(t->k < t->rows.columns ? select_entries(p, t, &list)
                                  : mp_plan_entries(p, t->dtype, t->order, t->x, &list));
    if (by_network) {
        return sort_short(p, t, t->k, list.entries);
    }
    if (t->sorted) {
        MP_TRY(mp_plan_sort(p, &list));
    }
    return emit(p, t, &list);
}

/* ---- rows that are not contiguous are made so, and back ---- */

static mp_status transpose(mp_planner *p, mp_rows r, int64_t columns, size_t size, bool back,
                           mp_ref from, mp_ref to) {
    const mp_shape shape = {.rank = 3, .dim = {r.rows / r.inner, r.inner, columns}};
    const mp_strided apart = {.ref = back ? to : from, .stride = {columns * r.inner, 1, r.inner}};
    const mp_strided whole = {.ref = back ? from : to, .stride = {r.inner * columns, columns, 1}};
    return mp_plan_strided_copy(p, &shape, size, back ? &whole : &apart, back ? &apart : &whole);
}

static mp_status plan_rows(mp_planner *p, const mp_topk *t) {
    if (mp_topk_few_takes(t)) {
        return mp_plan_topk_few(p, t);
    }
    return t->rows.columns <= K_SORT_SHORT ? sort_short(p, t, t->rows.columns, MP_NOWHERE)
                                           : sort_long(p, t);
}

static mp_status plan_transposed(mp_planner *p, const mp_topk *asked) {
    const size_t size = mp_dtype_size(asked->dtype);
    size_t index_bytes = 0;
    mp_topk t = *asked;
    t.rows.inner = 1;
    MP_TRY(mp_plan_bytes(t.rows.rows * t.k, MP_I64, &index_bytes));
    MP_TRY(mp_plan_scratch(p, (size_t)(t.rows.rows * t.rows.columns) * size, &t.x));
    MP_TRY(mp_plan_scratch(p, (size_t)(t.rows.rows * t.k) * size, &t.values));
    MP_TRY(mp_plan_scratch(p, index_bytes, &t.indices));
    MP_TRY(transpose(p, asked->rows, t.rows.columns, size, false, asked->x, t.x));
    MP_TRY(plan_rows(p, &t));
    MP_TRY(transpose(p, asked->rows, t.k, size, true, t.values, asked->values));
    return transpose(p, asked->rows, t.k, sizeof(int64_t), true, t.indices, asked->indices);
}

mp_status mp_plan_topk(mp_planner *p, const mp_topk *t) {
    return t->rows.inner == 1 ? plan_rows(p, t) : plan_transposed(p, t);
}
