/* group_blocks.h - which keys the rows of a block of attention_group.cu see where these are named
 * by blocks. The rows are of one head and follow each other, so they lie in a few neighbouring
 * blocks of queries, and a block of keys has one or more steps of KEYS. Four bits of a word say of
 * a step which of these blocks of queries see it, the first one's the lowest; a step that none sees
 * is not taken.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GROUP_BLOCKS_H
#define MP_KERNEL_GROUP_BLOCKS_H

#include "kernel/attention/direct.h"

enum { GB_BITS = K_GROUP_STEP_BITS, GB_STEPS = 32 / GB_BITS /* of a word */ };

K_FN int32_t gb_block(const k_score_rule *rule, const mma_block *at, int32_t query) {
    const int64_t position = a_position(rule, at->length, query);
    return position < 0 ? 0 : (int32_t)((uint32_t)position / (uint32_t)rule->blocks.size);
}

/* Which of the block's blocks of queries row `r` is in; rows beyond the last are that one. */
K_FN int32_t gb_kind(const k_score_rule *rule, const mma_block *at, int32_t r) {
    const int32_t there = r < at->row_count ? r : at->row_count - 1;
    return gb_block(rule, at, at->query_first + there) - gb_block(rule, at, at->query_first);
}

/* A bit for each of those of `count` rows from `first` on. */
K_FN uint32_t gb_kinds(const k_score_rule *rule, const mma_block *at, int32_t first,
                       int32_t count) {
    const int32_t from = gb_kind(rule, at, first), to = gb_kind(rule, at, first + count - 1);
    return (2U << to) - (1U << from);
}

/* Fills the words of all steps before `length`. A warp takes a block of queries. */
K_FN void gb_show(const k_score_rule *rule, const mma_block *at, int32_t length, uint32_t *shown) {
    const k_block_rule *blocks = &rule->blocks;
    const int32_t lane = (int32_t)threadIdx.x % LANES, warps = (int32_t)blockDim.x / LANES;
    const int32_t steps = (length + KEYS - 1) / KEYS, each = blocks->size / KEYS;
    const int64_t layout = (uint32_t)at->kv_head % (uint32_t)blocks->layouts;
    const int32_t first = gb_block(rule, at, at->query_first);
    const int32_t count = gb_block(rule, at, at->query_last) - first + 1;
    for (int32_t i = (int32_t)threadIdx.x; i * GB_STEPS < steps; i += (int32_t)blockDim.x) {
        shown[i] = 0;
    }
    __syncthreads();
    K_ONE_COPY for (int32_t kind = (int32_t)threadIdx.x / LANES; kind < count; kind += warps) {
        const a_span columns = a_row_columns(blocks, layout, first + kind);
        for (int64_t c = columns.from + lane; c < columns.to; c += LANES) {
            const int64_t step = (int64_t)blocks->columns[c] * each;
            const int32_t from = step < 0 || step > steps ? steps : (int32_t)step;
            const int32_t to = steps - from < each ? steps : from + each;
            for (int32_t s = from; s < to; s++) {
                atomicOr(shown + s / GB_STEPS, 1U << (s % GB_STEPS * GB_BITS + kind));
            }
        }
    }
    __syncthreads();
}

/* The first key of the first step from that of `key` on that a row sees; `length` or more where
 * there is none. */
K_FN int32_t gb_next(const uint32_t *shown, int32_t key, int32_t length) {
    int32_t step = key / KEYS;
    K_ONE_COPY while (step * KEYS < length) {
        const uint32_t left = shown[step / GB_STEPS] >> step % GB_STEPS * GB_BITS;
        if (left != 0) {
            step += (__ffs((int32_t)left) - 1) / GB_BITS;
            break;
        }
        step += GB_STEPS - step % GB_STEPS;
    }
    return __shfl_sync(0xffffffffU, step * KEYS, 0); /* so that the compiler knows that all agree */
}

/* Nothing is left of a step for rows whose block of queries does not see it. `row`: the first one
 * of the lane's two. */
K_FN void gb_hide(const direct_row *row, uint32_t seen, float (*score)[4]) {
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const int32_t is = seen >> row[r * SIDE].kind & 1;
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 2 * r; e < 2 * r + 2; e++) {
                score[n][e] = is ? score[n][e] : A_NONE;
            }
        }
    }
}

/* Which blocks of queries see the step of `key`. */
K_FN uint32_t gb_seen(const uint32_t *shown, int32_t key) {
    const int32_t step = key / KEYS;
    const uint32_t all = shown[step / GB_STEPS] >> step % GB_STEPS * GB_BITS;
    return __shfl_sync(0xffffffffU, all & ((1U << GB_BITS) - 1), 0);
}

#endif
