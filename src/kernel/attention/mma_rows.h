/* mma_rows.h - rows of a warp, for attention_mma.cu and attention_direct.cu: which scores they see,
 * and their sums; warps that had different keys of the same rows add up what they found.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_ROWS_H
#define MP_KERNEL_MMA_ROWS_H

#include "kernel/attention/mma_tile.h"

/* Nothing is left of keys that a row does not see. */
K_FN void mma_hide(const mma_row *row, int32_t key, float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            const int32_t place = key + n * SIDE + e % 2;
            const int32_t seen = place >= row[e / 2].from && place < row[e / 2].to;
            score[n][e] = seen ? score[n][e] : A_NONE;
        }
    }
}

K_FN void mma_clear(mma_state *state) {
    K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            state->out[d][e] = 0;
        }
    }
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        state->top[r] = A_NONE;
        state->total[r] = 0;
    }
}

/* e to the power of what a score is above `base`, both in steps of which `log2_e` is the logarithm
 * to the base 2. */
K_FN float mma_power(float score, float base, float log2_e) {
    return k_exp2((score - base) * log2_e);
}

/* What scores are compared with: their maximum, or 0 where all are left out. */
K_FN float mma_base(float top) {
    return top == A_NONE ? 0 : top;
}

/* Floats of a lane, as sets of warps hand them on. */
enum { STATE = HEAD_SIDES * 4 + 4 };

K_FN void mma_hand_on(float *to, const mma_state *state) {
    K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            to[(d * 4 + e) * LANES] = state->out[d][e];
        }
    }
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        to[(HEAD_SIDES * 4 + r) * LANES] = state->top[r];
        to[(HEAD_SIDES * 4 + 2 + r) * LANES] = state->total[r];
    }
}

K_FN void mma_take(const float *from, mma_state *state) {
    float mine[2], other[2];
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const float top = from[(HEAD_SIDES * 4 + r) * LANES];
        const float both = fmaxf(top, state->top[r]), base = mma_base(both);
        mine[r] = mma_power(state->top[r], base, MMA_LOG2_E);
        other[r] = mma_power(top, base, MMA_LOG2_E);
        state->top[r] = both;
        state->total[r] =
            state->total[r] * mine[r] + from[(HEAD_SIDES * 4 + 2 + r) * LANES] * other[r];
    }
    K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            state->out[d][e] =
                state->out[d][e] * mine[e / 2] + from[(d * 4 + e) * LANES] * other[e / 2];
        }
    }
}

/* The sets of warps meet in the first one. */
K_FN void mma_meet(int32_t row_warps, int32_t row_warp, int32_t set, int32_t sets, float *shared,
                   mma_state *state) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        state->total[r] += __shfl_xor_sync(MMA_ALL, state->total[r], 1);
        state->total[r] += __shfl_xor_sync(MMA_ALL, state->total[r], 2);
    }
    if (sets == 1) {
        return;
    }
    float *slots = shared + row_warp * STATE * LANES + lane;
    __syncthreads(); /* the last tile has been read */
    if (set > 0) {
        mma_hand_on(slots + (set - 1) * row_warps * STATE * LANES, state);
    }
    __syncthreads();
    K_ONE_COPY for (int32_t other = 1; set == 0 && other < sets; other++) {
        mma_take(slots + (other - 1) * row_warps * STATE * LANES, state);
    }
}

#endif
