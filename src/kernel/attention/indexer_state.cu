/* indexer_state.cu - tokens of a packed batch that wait from now on, in front of what lay there;
 * and new tokens that the caller wants to know of, but for those that end a window, which
 * indexer_keys.cu tells. Only moves, so there is an instance for each width.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/indexer_args.h"
#include "kernel/core/packed_batch.h"

/* Element `c` of token `v` of an entry, or of its gate. */
K_FN T i_token(const mp_indexer_state_args *args, const k_windows *w, int64_t entry, int32_t side,
               int64_t v, int64_t c) {
    if (v < w->waiting) {
        return ((const T *)args->kept[side])[(entry * args->kept_rows + v) * args->size + c];
    }
    const k_indexer *at = &args->at;
    const int64_t first = k_tokens_of(at->starts, entry, at->rows, at->tokens).first;
    return ((const T *)args->fresh[side])[(first + v - w->waiting) * args->pitch[side] + c];
}

K_KERNEL(mp_indexer_state_args, args) {
    const int64_t kept = args.at.batch * args.kept_rows * args.size;
    const int64_t told = args.at.batch * args.updates * args.size;
    const int32_t sides = args.gated ? 2 : 1;
    K_GRID_LOOP(i, kept * sides + told) {
        const int32_t side = (int32_t)(i < kept * sides ? i / kept : 0);
        const int64_t at = i < kept * sides ? i % kept : i - kept * sides;
        const int64_t rows = i < kept * sides ? args.kept_rows : args.updates;
        const int64_t c = at % args.size, row = at / args.size % rows;
        const int64_t entry = at / args.size / rows;
        const k_windows w = args.windows[entry];
        if (i < kept * sides) {
            const int stays = w.refused || row >= w.left;
            ((T *)args.kept_out[side])[at] =
                stays ? ((const T *)args.kept[side])[at]
                      : i_token(&args, &w, entry, side, w.first + row, c);
        } else if (row >= w.captured) {
            const T zero = {0};
            ((T *)args.update)[at] = zero;
        } else if ((w.waiting + row + 1) % args.at.ratio != 0) {
            ((T *)args.update)[at] = i_token(&args, &w, entry, 0, w.waiting + row, c);
        }
    }
}
