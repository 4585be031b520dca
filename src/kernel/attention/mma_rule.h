/* mma_rule.h - products become scores, for attention_mma.cu: scale, cap, mask, padding.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_RULE_H
#define MP_KERNEL_MMA_RULE_H

#include "kernel/attention/mma_mask.h"

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
    asks.last = mma_mask_last(rule);
    asks.mask_early = K_MMA_MASK(rule->mask_kind, sizeof(T)) && rule->mask_stride[3] == 1;
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
    if (asks->mask_early) {
        mma_masks(rule->mask_kind, 1, marks->mask, score);
    }
    if (asks->padding_early) {
        mma_padding(rule, marks->padding, score);
    }
}

#endif
