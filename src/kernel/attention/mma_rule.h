/* mma_rule.h - products become scores, for attention_mma.cu: scale, cap, mask, padding.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_RULE_H
#define MP_KERNEL_MMA_RULE_H

#include "kernel/attention/mma_tile.h"

K_FN int32_t mma_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* What a rule asks for: early is what is loaded before the product of a tile. */
typedef struct mma_asks {
    int32_t last; /* key that there is a mask for; a row that sees any sees none beyond it */
    int32_t mask_early, padding, padding_early;
    int32_t seldom;
    int32_t plain;     /* nothing but the scale, which the weights take in: scores are products */
    float scale, unit; /* unit: what a score is multiplied by, to be as the rule says */
} mma_asks;

K_FN mma_asks mma_asked(const k_score_rule *rule) {
    mma_asks asks;
    asks.last = (int32_t)(rule->keys < rule->mask_keys ? rule->keys : rule->mask_keys) - 1;
    asks.mask_early = rule->mask_stride[3] == 1 &&
                      (rule->mask_kind == K_MASK_BOOL ||
                       (K_FLOAT ? rule->mask_kind == K_MASK_F32
                                : rule->mask_kind == K_MASK_F16 || rule->mask_kind == K_MASK_BF16));
    asks.padding = rule->padding_kind != K_PADDING_NONE;
    asks.padding_early = asks.padding && rule->padding_stride[1] == 0;
    asks.seldom = rule->softcap > 0 || (rule->mask_kind != K_MASK_NONE && !asks.mask_early) ||
                  (asks.padding && !asks.padding_early);
    uint32_t scale = __float_as_uint((float)rule->scale);
    K_HOLD(asks.seldom);
    K_HOLD(scale);
    asks.scale = __uint_as_float(scale);
    asks.plain = !asks.seldom && !asks.mask_early && !asks.padding && asks.scale > 0;
    K_HOLD(asks.plain);
    asks.unit = asks.plain ? asks.scale : 1;
    return asks;
}

/* Words that hold the masks of four scores: as floats, or two a word. */
enum { MASK_WORDS = K_FLOAT ? 4 : 2 };

/* Floats of a row's mask as mma_mask_load has them, a word each. */
K_FN void mma_mask_floats(const float *from, int32_t left, uint32_t (*out)[MASK_WORDS], int32_t r) {
    if ((uint64_t)from % 8 == 0 && left > KEYS - SIDE) {
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            const uint64_t both = *(const uint64_t *)(const void *)(from + n);
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
        if ((uint64_t)from % 2 == 0 && left > KEYS - SIDE) {
            K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
                const uint32_t both = *(const uint16_t *)(const void *)(from + n);
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
    if ((uint64_t)from % 4 == 0 && left > KEYS - SIDE) {
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            out[n / SIDE][r] = *(const uint32_t *)(const void *)(from + n);
        }
        return;
    }
    K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
        const uint32_t low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
        out[n / SIDE][r] = low | high << 16;
    }
}

/* What the rule says of a lane's keys beside its mask, from `key` on in steps of SIDE. */
typedef struct mma_marks {
    uint32_t mask[KEY_SIDES][MASK_WORDS];
    uint64_t padding; /* a bit for each key of the warp */
} mma_marks;

/* Padding that is the same for all rows, a key of the warp a lane. */
K_FN uint64_t mma_padding_load(const k_score_rule *rule, const mma_block *at, int32_t key,
                               int32_t last) {
    const int64_t padding_row = a_padding_row(rule, at->entry, 0);
    uint64_t bits = 0;
    K_ONE_COPY for (int32_t i = 0; i < KEYS; i += LANES) {
        const int32_t place = mma_least(key + i + (int32_t)threadIdx.x % LANES, last);
        const float added = a_padded(rule, padding_row, at->entry, place, 0.0F);
        bits |= (uint64_t)__ballot_sync(MMA_ALL, added != 0) << i;
    }
    return bits;
}

K_FN void mma_padding(const k_score_rule *rule, uint64_t padding, float (*score)[4]) {
    const uint64_t mine = padding >> (int32_t)threadIdx.x % 4 * 2;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] += mine >> (n * SIDE + e % 2) & 1 ? rule->filter : 0;
        }
    }
}

/* `kind` is a constant where this is called. */
K_FN void mma_mask(int32_t kind, const uint32_t (*mask)[MASK_WORDS], float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            if (kind == K_MASK_F32) {
                score[n][e] += __uint_as_float(mask[n][e % MASK_WORDS]);
                continue;
            }
            const uint32_t both = mask[n][e / 2], half = e % 2 ? both >> 16 : both & 0xffffu;
            if (kind == K_MASK_BOOL) {
                score[n][e] = half != 0 ? score[n][e] : A_NONE;
            } else if (kind == K_MASK_F16) {
                const k_f16 added = {(uint16_t)half};
                score[n][e] += k_load_f16(added);
            } else {
                score[n][e] += k_float_of_bits(half << 16);
            }
        }
    }
}

/* All that is seldom asked for, by one text for all scores, which take turns in the first place. */
K_FN void mma_seldom(const mp_attention_args *args, const mma_block *at, const mma_row *row,
                     int32_t first_row, int32_t key, const mma_asks *asks, float (*score)[4]) {
    const k_score_rule *rule = &args->rule;
    int64_t padding_row[2];
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const mma_line line = mma_line_at(args, at, first_row + r * SIDE);
        padding_row[r] = a_padding_row(rule, at->entry, line.query);
    }
    K_ONE_COPY for (int32_t n = 0; n < KEY_SIDES; n++) {
        float first[4];
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            const int32_t place = mma_least(key + n * SIDE + e % 2, asks->last);
            first[e] = a_capped(rule, score[0][e]);
            if (!asks->mask_early) {
                first[e] = a_masked(rule, row[e / 2].mask_row, place, first[e]);
            }
            if (asks->padding && !asks->padding_early) {
                first[e] = a_padded(rule, padding_row[e / 2], at->entry, place, first[e]);
            }
        }
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            K_UNROLL for (int32_t i = 0; i + 1 < KEY_SIDES; i++) {
                score[i][e] = score[i + 1][e];
            }
            score[KEY_SIDES - 1][e] = first[e];
        }
    }
}

/* Products become scores: scale, cap, mask, padding. */
K_FN void mma_rule(const mp_attention_args *args, const mma_block *at, const mma_row *row,
                   int32_t first_row, int32_t key, const mma_asks *asks, const mma_marks *marks,
                   float (*score)[4]) {
    const k_score_rule *rule = &args->rule;
    if (asks->seldom) {
        mma_seldom(args, at, row, first_row, key, asks, score);
    } else {
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                score[n][e] *= asks->scale;
            }
        }
    }
    const int32_t kind = asks->mask_early ? rule->mask_kind : K_MASK_NONE;
    if (kind == K_MASK_BOOL) {
        mma_mask(K_MASK_BOOL, marks->mask, score);
    } else if (K_FLOAT && kind == K_MASK_F32) {
        mma_mask(K_MASK_F32, marks->mask, score);
    } else if (kind == K_MASK_F16) {
        mma_mask(K_MASK_F16, marks->mask, score);
    } else if (kind == K_MASK_BF16) {
        mma_mask(K_MASK_BF16, marks->mask, score);
    }
    if (asks->padding_early) {
        mma_padding(rule, marks->padding, score);
    }
}

#endif
