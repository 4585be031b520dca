/* direct.h - rows whose scores are products but for a factor and masks, for attention_direct.cu and
 * attention_group.cu: which keys they see, and what weights they give them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DIRECT_H
#define MP_KERNEL_DIRECT_H

#include "kernel/attention/mma_rows.h"

#define LEAP 8.0F
/* The base of a row that has not seen a key. Masks may add the lowest number that there is. */
#define LOWEST (K_MASKED ? -0x1.fffffep127F : -1e30F)

/* What is known of a row, in shared memory: it is looked at by one lane, and four have its sums. */
typedef struct direct_row {
    int64_t query, out; /* where they are */
    int64_t mask;
    int32_t from, to; /* keys that it sees */
    float sink;
    int32_t kind; /* of attention_group.cu by blocks: which block of queries it is in */
} direct_row;
static_assert(sizeof(direct_row) == K_DIRECT_ROW_BYTES, "a row is as long as it is for the plan");

/* Of all rows of a warp: keys that any of them sees, and those that all see. */
typedef struct direct_span {
    int32_t from, to;
    int32_t all_from, all_to;
} direct_span;

/* Places of a row, by the arguments alone. */
K_FN void direct_find(const mp_attention_args *args, const mma_block *at, const mma_line *line,
                      direct_row *row) {
    row->query = at->entry * args->q_stride[0] + line->head * args->q_stride[1] +
                 line->query * args->q_stride[2];
    row->out = at->entry * args->out_stride[0] + line->head * args->out_stride[1] +
               line->query * args->out_stride[2];
    if (K_MASKED) {
        row->mask = a_mask_row(&args->rule, at->entry, line->head, line->query);
    }
}

/* `row` is the lane's one. */
K_FN direct_span direct_look(const mp_attention_args *args, const mma_block *at,
                             const mma_line *line, direct_row *row) {
    const a_span seen = a_visible(&args->rule, at->length, line->query);
    const int32_t from = (int32_t)seen.from, to = (int32_t)seen.to;
    if (threadIdx.x % LANES < ROW_SETS * ROWS) {
        row->from = from;
        row->to = to;
        row->sink = a_sink(&args->rule, line->head);
    }
    __syncwarp();
    const direct_span span = {__reduce_min_sync(MMA_ALL, from), __reduce_max_sync(MMA_ALL, to),
                              __reduce_max_sync(MMA_ALL, from), __reduce_min_sync(MMA_ALL, to)};
    return span;
}

/* ---- weights ---- */

/* By how many powers of two a score is above a base. */
K_FN float direct_above(float factor, float score, float base) {
    return K_MASKED ? (score - base) * MMA_LOG2_E : fmaf(score, factor, -base);
}

/* Rows that rose: their new base, and what there is of them by it. */
K_FN void direct_rise(float factor, const float (*most)[2], mma_state *state) {
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        float shrink[2];
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            const float old = state[s].top[r];
            const float high = K_MASKED ? most[s][r] : most[s][r] * factor;
            const float fresh = direct_above(factor, most[s][r], old) > LEAP ? high : old;
            shrink[r] = k_exp2((old - fresh) * (K_MASKED ? MMA_LOG2_E : 1));
            state[s].top[r] = fresh;
            state[s].total[r] *= shrink[r];
        }
        K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                state[s].out[d][e] *= shrink[e / 2];
            }
        }
    }
}

/* The largest of what a lane has of each of its two rows. */
K_FN void direct_most(float (*score)[4], float *most) {
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        float one = fmaxf(score[0][2 * r], score[0][2 * r + 1]);
        float two = fmaxf(score[1][2 * r], score[1][2 * r + 1]); /* chains of half the length */
        K_UNROLL for (int32_t n = 2; n < KEY_SIDES; n += 2) {
            one = fmaxf(one, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            two = fmaxf(two, fmaxf(score[n + 1][2 * r], score[n + 1][2 * r + 1]));
        }
        most[r] = fmaxf(one, two);
    }
}

/* Scores, of which `factor` makes powers of two, become weights. The base of a row is its `top`:
 * one of the powers or, with masks, of the scores, which may be so large that a product with the
 * factor would be rounded by more than scores differ. A NaN is passed over for the maximum and
 * stays in the sum. */
K_FN void direct_weights(float factor, float (*score)[4], mma_state *state) {
    float most[ROW_SETS][2];
    int32_t rises = 0;
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        direct_most(score + s * KEY_SIDES, most[s]);
    }
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            most[s][r] = fmaxf(most[s][r], __shfl_xor_sync(MMA_ALL, most[s][r], 1));
            most[s][r] = fmaxf(most[s][r], __shfl_xor_sync(MMA_ALL, most[s][r], 2));
            rises |= direct_above(factor, most[s][r], state[s].top[r]) > LEAP;
        }
    }
    if (__any_sync(MMA_ALL, rises)) {
        direct_rise(factor, most, state);
    }
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        float(*const mine)[4] = score + s * KEY_SIDES;
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            const float base = state[s].top[r];
            float sum[2] = {0, 0};
            K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
                K_UNROLL for (int32_t e = 0; e < 2; e++) {
                    float *const x = &mine[n][2 * r + e];
                    *x = k_exp2(direct_above(factor, *x, base));
                    sum[e] += *x;
                }
            }
            state[s].total[r] += sum[0] + sum[1];
        }
    }
}

/* Where keys and rows do not see all of each other. `row`: the first one of the lane's sums. */
K_FN void direct_hide(const direct_row *row, int32_t key, float (*score)[4]) {
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        mma_row both[2];
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            both[r].from = row[s * ROWS + r * SIDE].from;
            both[r].to = row[s * ROWS + r * SIDE].to;
        }
        mma_hide(both, key, score + s * KEY_SIDES);
    }
}

/* `row` is the first one of the lane's sums, `first` its place in the block. */
K_FN void direct_store(const mp_attention_args *args, const mma_block *at, int32_t first,
                       const direct_row *row, const mma_state *state) {
    float norm[2 * ROW_SETS];
    K_UNROLL for (int32_t r = 0; r < 2 * ROW_SETS; r++) {
        norm[r] = mma_norm(row[r * SIDE].sink, state[r / 2].top[r % 2], state[r / 2].total[r % 2]);
    }
    K_UNROLL for (int32_t r = 0; r < 2 * ROW_SETS; r++) {
        if (first + r * SIDE < at->row_count) {
            T *const to = (T *)args->out + row[r * SIDE].out;
            mma_write(to, args->v_head_size, &state[r / 2], r % 2, norm[r]);
        }
    }
}

#endif
