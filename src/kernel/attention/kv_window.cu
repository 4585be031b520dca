/* kv_window.cu - caches that keep a window of the tokens: how many rows of the old cache and fresh
 * ones each entry has, less one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/kv_window.h"

K_KERNEL(mp_kv_window_args, args) {
    K_GRID_LOOP(entry, args.batch) {
        const int64_t tokens = w_tokens(&args, entry);
        const int64_t past = w_past(&args, tokens);
        const int64_t fresh = args.prompt || tokens < args.fresh_rows ? tokens : args.fresh_rows;
        args.used[entry] = (int32_t)(past + fresh - 1);
    }
}
