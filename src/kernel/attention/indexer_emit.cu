/* indexer_emit.cu - the keys that tokens have chosen, best first; or the tokens of their windows,
 * and behind them those of the window that is not full. What is left is -1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/indexer.h"

K_KERNEL(mp_indexer_emit_args, args) {
    const k_indexer *at = &args.at;
    K_GRID_LOOP(i, at->tokens * args.capacity) {
        const int64_t token = i / args.capacity, column = i % args.capacity;
        const x_view view = x_view_of(at, token);
        const int64_t best = view.keys < args.best_most ? view.keys : args.best_most;
        const int64_t step = args.whole ? at->ratio : 1, whole = best * step;
        int64_t tail = args.whole ? view.shown - view.keys * step : 0;
        tail = tail < args.capacity - whole ? tail : args.capacity - whole;
        int64_t chosen = -1;
        if (column < whole) {
            const int64_t key =
                ((const int64_t *)args.best)[token * args.best_most + column / step];
            chosen = key * step + column % step;
        } else if (column < whole + tail) {
            chosen = view.keys * step + column - whole;
        }
        if (chosen >= 0 && args.listed) {
            chosen = args.listed[view.entry * at->total + chosen];
        }
        args.out[i] = (int32_t)chosen;
        if (args.counts && column == 0) {
            args.counts[token] = (int32_t)(whole + tail);
        }
    }
}
