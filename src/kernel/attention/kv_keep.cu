/* kv_keep.cu - caches that keep a window of the tokens: the last of the old rows and the fresh ones
 * stay, and what is behind them becomes 0. Only moves, so there is an instance for each width.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/kv_window.h"

K_KERNEL(mp_kv_window_args, args) {
    const int64_t lines = args.batch * args.heads * args.capacity;
    K_GRID_LOOP(i, lines * (args.units[0] + args.units[1])) {
        const int32_t side = i >= lines * args.units[0];
        const int64_t units = args.units[side];
        const int64_t at = i - (side ? lines * args.units[0] : 0);
        const int64_t line = at / units, c = at - line * units;
        const int64_t head = line / args.capacity, row = line - head * args.capacity;
        const int64_t entry = head / args.heads;
        const int64_t rows = w_rows(&args, w_tokens(&args, entry));
        const int64_t from = (int64_t)args.used[entry] + 1 - rows + row;
        T value = {0};
        if (row < rows && from >= 0 && from < args.all_rows) {
            value = ((const T *)args.all[side])[(head * args.all_rows + from) * units + c];
        }
        ((T *)args.present[side])[at] = value;
    }
}
