/* sort_steps.c - a radix sort of pairs, from the lowest digit to the highest.
 * Kernels: rows/pairs.cu, rows/sort.cu, rows/scan_counts.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/sort_steps.h"

#include "op/rows/key_bits.h"

mp_status mp_plan_pair_memory(mp_planner *p, int64_t count, mp_ref *out) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(count, (int64_t)sizeof(k_pair), &bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld elements are too many to sort", (long long)count);
    }
    return mp_plan_scratch(p, (size_t)bytes, out);
}

mp_status mp_plan_pairs(mp_planner *p, mp_dtype dtype, k_order order, mp_ref x, int64_t rows,
                        int64_t columns, mp_ref pairs) {
    const mp_kernel *kernel = NULL;
    const mp_pairs_args args = {.count = rows * columns, .columns = columns, .order = order};
    MP_TRY(mp_plan_kernel(p, &kernel, "pairs_b%d", mp_order_bits(dtype)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_pairs_args, x, x),
                     MP_BIND(mp_pairs_args, pairs, pairs));
}

mp_status mp_plan_scan_counts(mp_planner *p, mp_ref counts, int64_t rows, int64_t length) {
    const mp_kernel *kernel = NULL;
    const mp_scan_counts_args args = {.rows = rows, .length = length};
    MP_TRY(mp_plan_kernel(p, &kernel, "scan_counts"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, rows, length > 256 ? 256 : 32), args,
                     MP_BIND(mp_scan_counts_args, counts, counts));
}

static mp_status launch(mp_planner *p, const mp_kernel *kernel, mp_sort_args args, int32_t stage,
                        mp_ref in, mp_ref out, mp_ref counts) {
    mp_grid grid = mp_plan_grid_rows(p, args.rows * args.tiles, K_SORT_LANES);
    grid.shared_bytes = 2 * K_SORT_TILE * sizeof(k_pair) + 16 * K_SORT_LANES * sizeof(uint16_t);
    args.stage = stage;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_sort_args, in, in),
                     MP_BIND(mp_sort_args, out, out), MP_BIND(mp_sort_args, counts, counts));
}

mp_status mp_plan_sort_pairs(mp_planner *p, int64_t rows, int64_t columns, int bits,
                             mp_ref *pairs) {
    mp_ref from = *pairs, to = MP_NOWHERE, counts = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    mp_sort_args args = {.rows = rows,
                         .columns = columns,
                         .tiles = columns / K_SORT_TILE + (columns % K_SORT_TILE != 0)};
    int64_t count_bytes = 0;
    if (__builtin_mul_overflow(rows * args.tiles, K_DIGITS * (int64_t)sizeof(int64_t),
                               &count_bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld rows are too many to sort", (long long)rows);
    }
    MP_TRY(mp_plan_pair_memory(p, rows * columns, &to));
    MP_TRY(mp_plan_scratch(p, (size_t)count_bytes, &counts));
    MP_TRY(mp_plan_kernel(p, &kernel, "sort"));
    for (args.shift = 0; args.shift < bits; args.shift += 8) {
        MP_TRY(launch(p, kernel, args, K_SORT_COUNT, from, MP_NOWHERE, counts));
        MP_TRY(mp_plan_scan_counts(p, counts, rows, K_DIGITS * args.tiles));
        MP_TRY(launch(p, kernel, args, K_SORT_MOVE, from, to, counts));
        const mp_ref sorted = to;
        to = from;
        from = sorted;
    }
    *pairs = from;
    return MP_OK;
}
