/* mma_half.h - products of a warp's rows with tiles of keys and values, for attention_mma.cu with
 * types of two bytes, and for attention_direct.cu. A warp has ROW_SETS times 16 rows: what belongs
 * to each set lies side by side in arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_HALF_H
#define MP_KERNEL_MMA_HALF_H

#include "kernel/attention/mma_tile.h"

#define mma_product K_JOIN(k_mma_, K_T0)
#define mma_pair    K_JOIN(k_pair_, K_T0)

/* 16 rows of a warp, elements from `d`. */
K_FN void mma_query(const T *q, int32_t d, uint32_t *out) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    k_matrices_load(out, q + lane % STEP * PITCH + d + lane / STEP * SIDE);
}

/* Where a lane reads in a tile of keys, and in one of values. */
K_FN int32_t mma_key_place(void) {
    const uint32_t lane = threadIdx.x % LANES;
    return (int32_t)((lane % SIDE + lane / STEP * SIDE) * PITCH + lane / SIDE % 2 * SIDE);
}

K_FN int32_t mma_value_place(void) {
    const uint32_t lane = threadIdx.x % LANES;
    return (int32_t)(lane % STEP * PITCH + lane / STEP * SIDE);
}

/* What is loaded of keys and of values serves all sets of rows. */
K_FN void mma_scores(const T *q, uint32_t (*kept)[4], const T *from, float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < ROW_SETS * KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = 0;
        }
    }
    K_UNROLL for (int32_t d = 0; d < HEAD; d += STEP) {
        uint32_t a[ROW_SETS][4];
        K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
            if (KEEP_Q) {
                K_UNROLL for (int32_t e = 0; e < 4; e++) {
                    a[s][e] = kept[s * (HEAD / DEPTH) + d / DEPTH][e];
                }
            } else {
                mma_query(q + s * ROWS * PITCH, d, a[s]);
            }
        }
        K_UNROLL for (int32_t n = 0; n < KEYS; n += STEP) {
            uint32_t b[4];
            k_matrices_load(b, from + n * PITCH + d);
            K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
                mma_product(score[s * KEY_SIDES + n / SIDE], a[s], b);
                mma_product(score[s * KEY_SIDES + n / SIDE + 1], a[s], b + 2);
            }
        }
    }
}

K_FN void mma_values(const T *from, float (*weight)[4], mma_state *state) {
    K_UNROLL for (int32_t n = 0; n < KEYS; n += STEP) {
        uint32_t a[ROW_SETS][4];
        K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
            const float *left = weight[s * KEY_SIDES + n / SIDE];
            const float *right = weight[s * KEY_SIDES + n / SIDE + 1];
            a[s][0] = mma_pair(left[0], left[1]);
            a[s][1] = mma_pair(left[2], left[3]);
            a[s][2] = mma_pair(right[0], right[1]);
            a[s][3] = mma_pair(right[2], right[3]);
        }
        K_UNROLL for (int32_t d = 0; d < HEAD; d += STEP) {
            uint32_t b[4];
            k_matrices_load_turned(b, from + n * PITCH + d);
            K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
                mma_product(state[s].out[d / SIDE], a[s], b);
                mma_product(state[s].out[d / SIDE + 1], a[s], b + 2);
            }
        }
    }
}

/* Row `r` of a lane's two, times `norm`. */
K_FN void mma_write(T *to, int32_t size, const mma_state *state, int32_t r, float norm) {
    to += threadIdx.x % 4 * 2;
    K_UNROLL for (int32_t n = 0; n < HEAD_SIDES; n++) {
        const uint32_t pair =
            mma_pair(state->out[n][2 * r] * norm, state->out[n][2 * r + 1] * norm);
        if (n * SIDE < size) { /* sizes are multiples of 8 */
            *(uint32_t *)(void *)(to + n * SIDE) = pair;
        }
    }
}

#endif
