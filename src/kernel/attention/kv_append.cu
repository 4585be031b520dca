/* kv_append.cu - caches of keys and values: the past rows and the fresh ones behind them, in one
 * pass for both. Where an entry's length ends before the cache, what is behind it becomes 0. Rows
 * of the past may be those of other entries (beams). Only moves, so there is an instance for each
 * width.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/beams.h"
#include "kernel/core/index.h"

K_FN int64_t v_split(const mp_kv_append_args *args, int64_t *i, int64_t dim, k_divider divider) {
    const int64_t outer = args->wide ? *i / dim : (int64_t)k_divide((uint32_t)*i, divider);
    const int64_t at = *i - outer * dim;
    *i = outer;
    return at;
}

/* Rows of an entry that were there before. */
K_FN int64_t v_past(const mp_kv_append_args *args, int64_t entry) {
    if (args->lengths == 0) {
        return args->past_used;
    }
    if (args->prompt) {
        return 0;
    }
    const int64_t past = (int64_t)((const int32_t *)args->lengths)[entry] + 1 - args->fresh_rows;
    const int64_t most = args->present_rows - args->fresh_rows;
    return past < 0 ? 0 : past < most ? past : most;
}

K_KERNEL(mp_kv_append_args, args) {
    const int64_t lines = args.batch * args.heads * args.visited;
    K_GRID_LOOP(i, lines * (args.units[0] + args.units[1])) {
        const int32_t side = i >= lines * args.units[0];
        int64_t rest = i - (side ? lines * args.units[0] : 0);
        const int64_t c = v_split(&args, &rest, args.units[side], args.by_units[side]);
        int64_t row = v_split(&args, &rest, args.visited, args.by_rows);
        const int64_t head = v_split(&args, &rest, args.heads, args.by_heads);
        const int64_t past = v_past(&args, rest);
        row += args.fresh_only ? past : 0;
        T value = {0};
        if (row >= past && row < past + args.fresh_rows) {
            const int64_t *stride = args.fresh_stride[side];
            value = ((const T *)args.fresh[side])[rest * stride[0] + head * stride[1] +
                                                  (row - past) * stride[2] + c];
        } else if (row < past && row < args.past_rows) {
            const int64_t line =
                (b_entry(&args.beams, rest, row) * args.heads + head) * args.past_rows;
            value = ((const T *)args.past[side])[(line + row) * args.units[side] + c];
        }
        ((T *)args.present[side])[((rest * args.heads + head) * args.present_rows + row) *
                                      args.units[side] +
                                  c] = value;
    }
}
