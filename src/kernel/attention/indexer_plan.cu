/* indexer_plan.cu - what becomes of the tokens of each entry of a packed batch. An entry whose
 * numbers do not fit together, or whose keys do not fit its room, stays as it is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/indexer_args.h"
#include "kernel/core/packed_batch.h"

K_FN int64_t i_between(int64_t low, int64_t value, int64_t high) {
    return value < low ? low : value < high ? value : high;
}

/* Whether the numbers of an entry fit together. */
K_FN int i_fits(const mp_indexer_state_args *args, int64_t entry) {
    const k_indexer *at = &args->at;
    const int64_t first = at->starts[entry], end = at->starts[entry + 1], past = at->past[entry];
    const int64_t keys = args->lengths[2 * entry], waiting = args->lengths[2 * entry + 1];
    const int whole = at->starts[0] == 0 && at->starts[at->batch] == at->tokens;
    const int own = first >= 0 && end >= first && end <= at->tokens && past >= 0;
    const int room =
        keys >= 0 && keys <= args->capacity && waiting >= 0 && waiting <= args->kept_rows;
    const int agree =
        args->gated || (past >= 0 && keys == past / at->ratio && waiting == past % at->ratio);
    return whole && own && room && agree;
}

K_KERNEL(mp_indexer_state_args, args) {
    const k_indexer *at = &args.at;
    K_GRID_LOOP(entry, at->batch) {
        const int fits = i_fits(&args, entry);
        const int64_t keys = i_between(0, args.lengths[2 * entry], args.capacity);
        const int64_t most = args.gated ? args.kept_rows : at->ratio - 1;
        const int64_t waiting = i_between(0, args.lengths[2 * entry + 1], most);
        const int64_t fresh = fits ? (int64_t)at->starts[entry + 1] - at->starts[entry] : 0;
        const int64_t before = args.gated && waiting >= at->ratio ? at->ratio : 0;
        const int64_t pending = waiting - before + fresh, made = pending / at->ratio;
        const int64_t kept = args.gated ? at->ratio : 0; /* of the last window */
        k_windows w;
        w.refused = !fits || made > args.capacity - keys;
        w.keys = (int32_t)keys;
        w.waiting = (int32_t)waiting;
        w.before = (int32_t)before;
        w.made = w.refused ? 0 : (int32_t)made;
        w.first = w.made > 0 ? (int32_t)(before + made * at->ratio - kept) : 0;
        w.left = (int32_t)(w.refused    ? waiting
                           : w.made > 0 ? kept + pending % at->ratio
                                        : before + pending);
        const int tell = !w.refused && args.wanted && (!args.active || args.active[0] != 0);
        const int64_t told = fresh < args.updates ? fresh : args.updates;
        w.captured = tell ? (int32_t)i_between(0, args.wanted[entry], told) : 0;
        args.windows[entry] = w;
        args.lengths_out[2 * entry] = w.keys + w.made;
        args.lengths_out[2 * entry + 1] = w.left;
    }
}
