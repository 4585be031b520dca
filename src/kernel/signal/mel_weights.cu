/* mel_weights.cu - the triangles of MelWeightMatrix.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/typed_store.h"
#include "kernel/signal/signal_args.h"

/* The triangle that rises from `low` to 1 at `top` and falls to 0 at `high`. */
K_FN double height_at(int64_t bin, int64_t low, int64_t top, int64_t high) {
    if (bin == top) {
        return 1;
    }
    if (bin >= low && bin < top) {
        return (double)(bin - low) / (double)(top - low);
    }
    return bin > top && bin < high ? (double)(high - bin) / (double)(high - top) : 0.0;
}

K_KERNEL(mp_mel_args, args) {
    K_GRID_LOOP(i, args.bins * args.bands) {
        const int64_t bin = i / args.bands;
        const int64_t *edge = args.edge + (i - bin * args.bands);
        k_typed_store(args.out, i, args.type, height_at(bin, edge[0], edge[1], edge[2]));
    }
}
