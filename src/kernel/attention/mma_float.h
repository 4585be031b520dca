/* mma_float.h - the same as mma_half.h for float, whose products round their operands to TF32.
 *
 * A lane reads four neighbouring elements of a value at once. So column n of product j of four is
 * element 4 n + j of 32, and a lane has eight neighbouring elements of a row's sums. Of eight keys
 * the even ones come before the odd ones in a sum, since that is how the scores lie.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_FLOAT_H
#define MP_KERNEL_MMA_FLOAT_H

#include "kernel/attention/mma_tile.h"

enum { QUAD = 4, SPAN = QUAD * SIDE /* elements of a value that a warp reads at once */ };
static_assert(HEAD % SPAN == 0 && KEEP_Q, "heads of whole spans, whose queries are kept");

typedef struct K_ALIGN(16) mma_quad {
    float x[QUAD];
} mma_quad;

/* The 16 rows of a warp, elements from `d`. */
K_FN void mma_query(const T *q, int32_t d, uint32_t *out) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    k_matrices_load(out, q + lane % STEP * PITCH + d + lane / STEP * QUAD);
    K_UNROLL for (int32_t e = 0; e < 4; e++) {
        out[e] = k_near_tf32(__uint_as_float(out[e]));
    }
}

/* Where a lane reads in a tile of keys, and in one of values. */
K_FN int32_t mma_key_place(void) {
    const uint32_t lane = threadIdx.x % LANES;
    return (int32_t)(lane % SIDE * PITCH + lane / SIDE * QUAD);
}

K_FN int32_t mma_value_place(void) {
    const uint32_t lane = threadIdx.x % LANES;
    return (int32_t)(lane % 4 * 2 * PITCH + lane / 4 * QUAD);
}

K_FN void mma_scores(const T *q, uint32_t (*kept)[4], const T *from, float (*score)[4]) {
    (void)q;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = 0;
        }
    }
    K_UNROLL for (int32_t d = 0; d < HEAD; d += 2 * DEPTH) {
        uint32_t b[KEY_SIDES][4];
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            k_matrices_load(b[n], from + n * SIDE * PITCH + d);
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                b[n][e] = k_near_tf32(__uint_as_float(b[n][e]));
            }
        }
        K_UNROLL for (int32_t half = 0; half < 2; half++) {
            K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
                k_mma_tf32(score[n], kept[d / DEPTH + half], b[n] + 2 * half);
            }
        }
    }
}

K_FN void mma_values(const T *from, float (*weight)[4], mma_state *state) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        const uint32_t a[4] = {k_near_tf32(weight[n][0]), k_near_tf32(weight[n][2]),
                               k_near_tf32(weight[n][1]), k_near_tf32(weight[n][3])};
        K_UNROLL for (int32_t d = 0; d < HEAD; d += SPAN) {
            const T *place = from + n * SIDE * PITCH + d;
            const mma_quad even = *(const mma_quad *)(const void *)place;
            const mma_quad odd = *(const mma_quad *)(const void *)(place + PITCH);
            K_UNROLL for (int32_t j = 0; j < QUAD; j++) {
                const uint32_t b[2] = {k_near_tf32(even.x[j]), k_near_tf32(odd.x[j])};
                k_mma_tf32(state->out[d / SIDE + j], a, b);
            }
        }
    }
}

/* Row `r` of a lane's two, times `norm`. */
K_FN void mma_write(T *to, int32_t size, const mma_state *state, int32_t r, float norm) {
    const int32_t first = (int32_t)threadIdx.x % 4 * 2 * QUAD;
    K_UNROLL for (int32_t d = 0; d < HEAD; d += SPAN) {
        K_UNROLL for (int32_t odd = 0; odd < 2; odd++) {
            mma_quad out;
            K_UNROLL for (int32_t j = 0; j < QUAD; j++) {
                out.x[j] = state->out[d / SIDE + j][2 * r + odd] * norm;
            }
            if (d + first < size) { /* sizes are multiples of 8 */
                *(mma_quad *)(void *)(to + d + first + odd * QUAD) = out;
            }
        }
    }
}

#endif
