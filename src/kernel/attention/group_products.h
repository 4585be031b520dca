/* group_products.h - products of a group's 64 rows with a tile of keys and of values, and what
 * becomes of the scores in between, for attention_group.cu and attention_turns.cu.
 *
 * Keys and values lie in parts of 64 elements of a head, one behind the other: lines of 128 bytes
 * as group_matrix.h wants them, a row each, of which heads of 48 leave the end alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_PRODUCTS_H
#define MP_KERNEL_GROUP_PRODUCTS_H

#include "kernel/attention/direct.h"
#include "kernel/core/group_matrix.h"

enum {
    G_GROUP = 128, /* lanes */
    G_LINE = 128,  /* bytes */
    G_PIECE = 16,
    G_PARTS = (HEAD * 2 + G_LINE - 1) / G_LINE,
    G_PART = KEYS * G_LINE, /* of keys or values */
    G_TILE = G_PARTS * G_PART,
    G_STEPS = G_LINE / 32, /* products along a part of a head */
    G_VALUE_STEP = STEP * G_LINE,
};

#define g_scored K_JOIN(K_JOIN(k_group_, K_T0), _64)
#if K_HEAD == 48
#define g_valued K_JOIN(K_JOIN(k_group_rows_, K_T0), _48)
#else
#define g_valued K_JOIN(K_JOIN(k_group_rows_, K_T0), _64)
#endif

/* Where a piece of a row lies, in lines of which a part has so many bytes. */
K_FN int32_t g_spot(int32_t row, int32_t piece, int32_t part_bytes) {
    return piece / 8 * part_bytes + row * G_LINE + ((piece ^ row) & 7) * G_PIECE;
}

/* Begins to multiply rows by a tile of keys. */
K_FN void g_scores(uint32_t (*kept)[4], uint32_t keys, float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = 0;
        }
    }
    k_group_begin();
    K_UNROLL for (int32_t d = 0; d < HEAD / DEPTH; d++) {
        const int32_t at = d / G_STEPS * G_PART + d % G_STEPS * 32;
        g_scored(score[0], kept[d], k_group_operand(keys) + (uint64_t)(at >> 4));
    }
}

/* Weights become left operands. */
K_FN void g_pack(float (*weight)[4], uint32_t (*a)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEYS / STEP; n++) {
        const float *left = weight[2 * n], *right = weight[2 * n + 1];
        a[n][0] = mma_pair(left[0], left[1]);
        a[n][1] = mma_pair(left[2], left[3]);
        a[n][2] = mma_pair(right[0], right[1]);
        a[n][3] = mma_pair(right[2], right[3]);
    }
}

/* As direct_weights, but what rows have summed up so far stays as it is: `shrink` says by what to
 * multiply it. Returns whether any of that is not 1. */
K_FN int32_t g_weights(float factor, float (*score)[4], mma_state *state, float *shrink) {
    float most[2];
    int32_t rises = 0;
    direct_most(score, most);
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(MMA_ALL, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(MMA_ALL, most[r], 2));
        rises |= direct_above(factor, most[r], state->top[r]) > LEAP;
    }
    rises = __any_sync(MMA_ALL, rises);
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const float old = state->top[r];
        const float high = K_MASKED ? most[r] : most[r] * factor;
        const float fresh = direct_above(factor, most[r], old) > LEAP ? high : old;
        shrink[r] = k_exp2((old - fresh) * (K_MASKED ? MMA_LOG2_E : 1));
        state->top[r] = fresh;
        float sum[2] = {0, 0};
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 0; e < 2; e++) {
                float *const x = &score[n][2 * r + e];
                *x = k_exp2(direct_above(factor, *x, fresh));
                sum[e] += *x;
            }
        }
        state->total[r] = state->total[r] * shrink[r] + (sum[0] + sum[1]);
    }
    return rises;
}

K_FN void g_shrink(const float *shrink, mma_state *state) {
    K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            state->out[d][e] *= shrink[e / 2];
        }
    }
}

/* Begins to add what the tile of values gives. */
K_FN void g_values(uint32_t (*a)[4], uint32_t values, mma_state *state) {
    k_group_begin();
    K_UNROLL for (int32_t n = 0; n < KEYS / STEP; n++) {
        K_UNROLL for (int32_t part = 0; part < G_PARTS; part++) {
            const int32_t at = part * G_PART + n * G_VALUE_STEP;
            g_valued(state->out[part * 8], a[n], k_group_operand(values) + (uint64_t)(at >> 4));
        }
    }
}

#endif
