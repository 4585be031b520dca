/* nbits_unpack.cu - packed weights as numbers, a row of k for each column. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/nbits.h"

enum { PIECE = K_NBITS_PIECE };

/* Where each weight says itself which block's scale it has; one out of range has the first. */
K_FN T grouped(const k_nbits *w, int64_t column, int64_t k, uint64_t packed, int i) {
    const int32_t asked = ((const int32_t *)w->group)[k + i];
    const w_block block = w_common(w, 0, column, asked >= 0 && asked < w->blocks ? asked : 0);
    return T_store(w_value(w, packed, i, &block));
}

K_KERNEL(mp_nbits_args, args) {
    const k_nbits *w = &args.w;
    const int64_t pieces = (w->k + PIECE - 1) / PIECE;
    K_GRID_LOOP(i, w->n * pieces) {
        const int64_t column = i / pieces, k = (i - column * pieces) * PIECE;
        const int64_t left = w->k - k;
        const uint64_t packed = w_packed(w, column, k);
        const w_block block = w_common(w, 0, column, w_block_of(w, k));
        T *to = (T *)args.out + column * w->k + k;
        w_piece piece;
        for (int e = 0; e < PIECE; e++) {
            piece.at[e] = w->group != 0 && e < left ? grouped(w, column, k, packed, e)
                                                    : T_store(w_value(w, packed, e, &block));
        }
        if (w->aligned && left >= PIECE) {
            *(w_piece *)(void *)to = piece;
        } else {
            for (int e = 0; e < PIECE; e++) {
                if (e < left) {
                    to[e] = piece.at[e];
                }
            }
        }
    }
}
