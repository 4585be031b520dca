/* nbits.h - reads blocks of packed weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_H
#define MP_KERNEL_NBITS_H

#include "kernel/core/prelude.h"
#include "kernel/quantize/quantize_args.h"

typedef struct K_ALIGN(sizeof(T) * K_NBITS_PIECE < 16 ? sizeof(T) * K_NBITS_PIECE : 16) w_piece {
    T at[K_NBITS_PIECE];
} w_piece;

/* Weights [k, k + K_NBITS_PIECE) of a column, as they are stored. */
K_FN uint64_t w_packed(const k_nbits *w, int64_t column, int64_t k) {
    const uint8_t *at = (const uint8_t *)w->weight + column * w->weight_row + k * w->bits / 8;
    if (w->aligned) {
        return w->bits == 4   ? *(const uint32_t *)at
               : w->bits == 8 ? *(const uint64_t *)at
                              : *(const uint16_t *)at;
    }
    uint64_t all = 0;
    for (int i = 0; i < w->bits; i++) {
        all |= (uint64_t)at[i] << i * 8;
    }
    return all;
}

typedef struct w_block {
    float scale, zero; /* a weight q means (q - zero) * scale */
} w_block;

/* What block number `block` of a column has in common. */
K_FN w_block w_common(const k_nbits *w, int64_t column, int64_t block) {
    w_block out;
    out.scale = T_load(((const T *)w->scale)[column * w->blocks + block]);
    if (w->zero == 0) {
        out.zero = (float)w->middle;
    } else if (w->zero_packed) {
        const int64_t bit = block * w->bits;
        const uint32_t byte = ((const uint8_t *)w->zero)[column * w->zero_row + bit / 8];
        out.zero = (float)(byte >> bit % 8 & ((1u << w->bits) - 1));
    } else {
        out.zero = T_load(((const T *)w->zero)[column * w->blocks + block]);
    }
    return out;
}

/* Weight number `i` of a piece. */
K_FN float w_value(const k_nbits *w, uint64_t packed, int i, const w_block *block) {
    const uint32_t q = (uint32_t)(packed >> i * w->bits) & ((1u << w->bits) - 1);
    return ((float)q - block->zero) * block->scale;
}

#endif
