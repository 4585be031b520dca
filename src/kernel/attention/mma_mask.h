/* mma_mask.h - masks of rows, for attention_mma.cu and attention_direct.cu: of the kinds that
 * K_MMA_MASK names, whose keys are neighbours. A lane has those of its scores in registers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_MASK_H
#define MP_KERNEL_MMA_MASK_H

#include "kernel/attention/mma_tile.h"

/* Words that hold the masks of four scores: as floats, or two a word. */
enum { MASK_WORDS = K_FLOAT ? 4 : 2 };

/* The last key that there is a mask for. */
K_FN int32_t mma_mask_last(const k_score_rule *rule) {
    return (int32_t)(rule->keys < rule->mask_keys ? rule->keys : rule->mask_keys) - 1;
}

/* Whether a lane's keys are there by pairs, none of which the end of a row divides, at multiples of
 * `size` bytes. `left`: keys to the last one. */
K_FN int32_t mma_mask_pairs(const void *from, uint32_t size, int32_t left) {
    return (uint64_t)from % size == 0 && left % 2 != 0;
}

/* Floats of a row's mask as mma_mask_load has them, a word each. */
K_FN void mma_mask_floats(const float *from, int32_t left, uint32_t (*out)[MASK_WORDS], int32_t r) {
    if (mma_mask_pairs(from, 8, left)) {
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            const uint64_t both = n < left ? *(const uint64_t *)(const void *)(from + n) : 0;
            out[n / SIDE][MASK_WORDS / 2 * r] = (uint32_t)both;
            out[n / SIDE][MASK_WORDS / 2 * r + MASK_WORDS / 4] = (uint32_t)(both >> 32);
        }
        return;
    }
    K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
        const float low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
        out[n / SIDE][MASK_WORDS / 2 * r] = __float_as_uint(low);
        out[n / SIDE][MASK_WORDS / 2 * r + MASK_WORDS / 4] = __float_as_uint(high);
    }
}

/* Masks of a row, of one or two bytes, for a lane's keys `key` and the next one, and so on in steps
 * of SIDE: the first in the low half of a word. They are asked for before the product, which takes
 * as long as they do. */
K_FN void mma_mask_load(const k_score_rule *rule, int64_t mask_row, int32_t key, int32_t last,
                        uint32_t (*out)[MASK_WORDS], int32_t r) {
    const int32_t left = last - key; /* to the last one */
    if (K_FLOAT && rule->mask_kind == K_MASK_F32) {
        mma_mask_floats((const float *)rule->mask + mask_row + key, left, out, r);
        return;
    }
    if (rule->mask_kind == K_MASK_BOOL) {
        const uint8_t *from = (const uint8_t *)rule->mask + mask_row + key;
        if (mma_mask_pairs(from, 2, left)) {
            K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
                const uint32_t both = n < left ? *(const uint16_t *)(const void *)(from + n) : 0;
                out[n / SIDE][r] = (both & 0xffu) | both >> 8 << 16;
            }
            return;
        }
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            const uint32_t low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
            out[n / SIDE][r] = low | high << 16;
        }
        return;
    }
    const uint16_t *from = (const uint16_t *)rule->mask + mask_row + key;
    if (mma_mask_pairs(from, 4, left)) {
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            out[n / SIDE][r] = n < left ? *(const uint32_t *)(const void *)(from + n) : 0;
        }
        return;
    }
    K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
        const uint32_t low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
        out[n / SIDE][r] = low | high << 16;
    }
}

/* Scores, times `scale`, get their masks. `kind` is a constant where this is called. */
K_FN void mma_mask(int32_t kind, float scale, const uint32_t (*mask)[MASK_WORDS],
                   float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            if (kind == K_MASK_F32) {
                score[n][e] = fmaf(score[n][e], scale, __uint_as_float(mask[n][e % MASK_WORDS]));
                continue;
            }
            const uint32_t both = mask[n][e / 2], half = e % 2 ? both >> 16 : both & 0xffffu;
            if (kind == K_MASK_BOOL) {
                score[n][e] = half != 0 ? score[n][e] * scale : A_NONE;
            } else if (kind == K_MASK_F16) {
                const k_f16 added = {(uint16_t)half};
                score[n][e] = fmaf(score[n][e], scale, k_load_f16(added));
            } else {
                score[n][e] = fmaf(score[n][e], scale, k_float_of_bits(half << 16));
            }
        }
    }
}

K_FN void mma_masks(int32_t kind, float scale, const uint32_t (*mask)[MASK_WORDS],
                    float (*score)[4]) {
    if (kind == K_MASK_BOOL) {
        mma_mask(K_MASK_BOOL, scale, mask, score);
    } else if (K_FLOAT) {
        mma_mask(K_MASK_F32, scale, mask, score);
    } else if (kind == K_MASK_F16) {
        mma_mask(K_MASK_F16, scale, mask, score);
    } else {
        mma_mask(K_MASK_BF16, scale, mask, score);
    }
}

#endif
