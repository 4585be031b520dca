/* sort_steps.c - a radix sort of entries, from the lowest digit to the highest.
 * Kernels: rows/pairs.cu, rows/sort.cu, rows/scan_counts.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/sort_steps.h"

#include "op/rows/key_bits.h"

bool mp_sort_in_words(int bits, int64_t columns) {
    return bits <= 32 && columns <= (int64_t)1 << 32;
}

static int64_t entry_bytes(const mp_sort_list *list) {
    return list->words ? (int64_t)sizeof(uint64_t) : (int64_t)sizeof(k_pair);
}

mp_status mp_plan_sort_memory(mp_planner *p, mp_sort_list *list) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(list->rows, list->columns, &bytes) ||
        __builtin_mul_overflow(bytes, entry_bytes(list), &bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld rows of %lld elements are too many to sort",
                       (long long)list->rows, (long long)list->columns);
    }
    return mp_plan_scratch(p, (size_t)bytes, &list->entries);
}

mp_status mp_plan_pair_memory(mp_planner *p, int64_t count, mp_ref *out) {
    mp_sort_list list = {.rows = 1, .columns = count};
    MP_TRY(mp_plan_sort_memory(p, &list));
    *out = list.entries;
    return MP_OK;
}

mp_status mp_plan_entries(mp_planner *p, mp_dtype dtype, k_order order, mp_ref x,
                          const mp_sort_list *list) {
    const mp_kernel *kernel = NULL;
    const mp_pairs_args args = {.count = list->rows * list->columns,
                                .columns = list->columns,
                                .order = order,
                                .words = list->words};
    MP_TRY(mp_plan_kernel(p, &kernel, "pairs_b%d", mp_order_bits(dtype)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_pairs_args, x, x),
                     MP_BIND(mp_pairs_args, entries, list->entries));
}

mp_status mp_plan_scan_counts(mp_planner *p, mp_ref counts, int64_t rows, int64_t length,
                              mp_ref totals) {
    const mp_kernel *kernel = NULL;
    const mp_scan_counts_args args = {.rows = rows, .length = length};
    MP_TRY(mp_plan_kernel(p, &kernel, "scan_counts"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, rows, length > 256 ? 256 : 32), args,
                     MP_BIND(mp_scan_counts_args, counts, counts),
                     MP_BIND(mp_scan_counts_args, totals, totals));
}

/* ---- one digit ---- */

typedef struct pass {
    const mp_kernel *kernel;
    mp_sort_args args;
    uint32_t shared_bytes;
    mp_ref in, out, counts, totals;
} pass;

static mp_status launch(mp_planner *p, pass *s, int32_t stage) {
    mp_grid grid = mp_plan_grid_rows(p, s->args.rows * s->args.tiles, K_SORT_LANES);
    grid.shared_bytes = s->shared_bytes;
    s->args.stage = stage;
    return MP_LAUNCH(p, s->kernel, grid, s->args, MP_BIND(mp_sort_args, in, s->in),
                     MP_BIND(mp_sort_args, out, stage == K_SORT_MOVE ? s->out : MP_NOWHERE),
                     MP_BIND(mp_sort_args, counts, s->counts),
                     MP_BIND(mp_sort_args, totals, s->totals));
}

static mp_status pass_memory(mp_planner *p, pass *s) {
    const int64_t per_row = K_DIGITS * (int64_t)sizeof(int64_t);
    int64_t count_bytes = 0;
    if (__builtin_mul_overflow(s->args.rows * s->args.tiles, per_row, &count_bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld rows are too many to sort", (long long)s->args.rows);
    }
    MP_TRY(mp_plan_scratch(p, (size_t)(s->args.rows * per_row), &s->totals));
    return mp_plan_scratch(p, (size_t)count_bytes, &s->counts);
}

mp_status mp_plan_sort(mp_planner *p, mp_sort_list *list) {
    const int64_t tile = K_SORT_LANES * (K_SORT_RUN_BYTES / entry_bytes(list));
    mp_sort_list other = *list;
    pass s = {.args = {.rows = list->rows,
                       .columns = list->columns,
                       .tiles = MP_CEIL_DIV(list->columns, tile)},
              .in = list->entries};
    /* Two lists with a gap of an entry for each run, and a count for each lane and half digit. */
    s.shared_bytes = (uint32_t)(2 * (tile + K_SORT_LANES) * entry_bytes(list) +
                                16 * K_SORT_LANES * (int64_t)sizeof(uint16_t));
    MP_TRY(mp_plan_sort_memory(p, &other));
    MP_TRY(pass_memory(p, &s));
    s.out = other.entries;
    MP_TRY(mp_plan_kernel(p, &s.kernel, list->words ? "sort_words" : "sort_pairs"));
    for (s.args.shift = 0; s.args.shift < list->bits; s.args.shift += 8) {
        MP_TRY(launch(p, &s, K_SORT_COUNT));
        MP_TRY(mp_plan_scan_counts(p, s.counts, s.args.rows * K_DIGITS, s.args.tiles, s.totals));
        MP_TRY(launch(p, &s, K_SORT_MOVE));
        const mp_ref sorted = s.out;
        s.out = s.in;
        s.in = sorted;
    }
    list->entries = s.in;
    return MP_OK;
}
