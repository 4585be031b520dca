/* nbits.h - reads blocks of packed weights: what they are is K_WEIGHTS,
 * one of K_NBITS_....
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_H
#define MP_KERNEL_NBITS_H

#include "kernel/core/prelude.h"
#include "kernel/quantize/quantize.h"
#include "kernel/quantize/quantize_args.h"

enum { CODED = K_WEIGHTS == K_NBITS_CODE };

typedef struct K_ALIGN(sizeof(T) * K_NBITS_PIECE < 16 ? sizeof(T) * K_NBITS_PIECE : 16) w_piece {
    T at[K_NBITS_PIECE];
} w_piece;

/* Weights [k, k + K_NBITS_PIECE) of a column, as they are stored; 0 for what is beyond its row. */
K_FN uint64_t w_packed(const k_nbits *w, int64_t column, int64_t k) {
    const int64_t offset = k * w->bits / 8;
    const uint8_t *at = (const uint8_t *)w->weight + column * w->weight_row + offset;
    uint64_t all = 0;
    if (w->aligned) {
        all = w->bits == 4   ? *(const uint32_t *)at
              : w->bits == 8 ? *(const uint64_t *)at
                             : *(const uint16_t *)at;
    } else {
        for (int i = 0; i < w->bits; i++) {
            all |= offset + i < w->weight_row ? (uint64_t)at[i] << i * 8 : 0;
        }
    }
    const uint64_t low = 0x0f0f0f0full;
    return w->swapped ? (all & low) << 4 | (all >> 4 & low) : all;
}

typedef struct w_block {
    float scale, zero; /* a weight q means (q - zero) * scale */
} w_block;

K_FN int64_t w_block_of(const k_nbits *w, int64_t k) {
    return w->block_shift >= 0 ? k >> w->block_shift : k / w->block;
}

/* What block number `block` of a column of matrix `matrix` has in common; `column` counts those of
 * the matrices before, too. */
K_FN w_block w_common(const k_nbits *w, int64_t matrix, int64_t column, int64_t block) {
    w_block out;
    int64_t row = column;
    if (w->side > 1) {
        row = matrix * w->side_rows + (column - matrix * w->n) / w->side;
    }
    out.scale = q_scale(w->scale, w->scale_type, row * w->blocks + block);
    if (w->factor != 0) {
        out.scale *= ((const float *)w->factor)[matrix];
    }
    if (w->zero == 0) {
        out.zero = (float)w->middle;
    } else if (w->zero_packed) {
        const int64_t at = w->zero_across ? matrix : column;
        const int64_t bit = (w->zero_across ? column - matrix * w->n : block) * w->bits;
        const uint32_t byte = ((const uint8_t *)w->zero)[at * w->zero_row + bit / 8];
        out.zero = (float)(byte >> bit % 8 & ((1u << w->bits) - 1));
    } else {
        out.zero = T_load(((const T *)w->zero)[column * w->blocks + block]);
    }
    return out;
}

K_FN uint32_t w_bits(uint64_t packed, int i, int bits) {
    return (uint32_t)(packed >> i * bits) & ((1u << bits) - 1);
}

/* Weight number `i` of a piece. */
K_FN float w_value(const k_nbits *w, uint64_t packed, int i, const w_block *block) {
    const uint32_t q = w_bits(packed, i, w->bits);
    return CODED ? ((const float *)w->values)[q] * block->scale
                 : ((float)q - block->zero) * block->scale;
}

/* Elements [k, k + K_NBITS_PIECE) of a row of `length`; 0 for what is beyond. */
K_FN void w_elements(const T *row, int64_t k, int64_t length, int32_t aligned, float *out) {
    const int64_t left = length - k;
    w_piece piece;
    if (aligned) {
        piece = *(const w_piece *)(const void *)(row + k);
    } else {
        K_UNROLL for (int i = 0; i < K_NBITS_PIECE; i++) {
            piece.at[i] = row[i < left ? k + i : k];
        }
    }
    K_UNROLL for (int i = 0; i < K_NBITS_PIECE; i++) {
        out[i] = i < left ? T_load(piece.at[i]) : 0;
    }
}

/* The same of the weights of a column, as numbers. */
K_FN void w_numbers(const k_nbits *w, int64_t matrix, int64_t column, int64_t k, float *out) {
    if (K_WEIGHTS == K_NBITS_PLAIN) {
        w_elements((const T *)w->weight + column * w->k, k, w->k, w->aligned, out);
        return;
    }
    const uint64_t packed = w_packed(w, column, k);
    const w_block block = w_common(w, matrix, column, w_block_of(w, k));
    K_UNROLL for (int i = 0; i < K_NBITS_PIECE; i++) {
        out[i] = k + i < w->k ? w_value(w, packed, i, &block) : 0;
    }
}

#endif
