/* attention_group.cu - what attention_direct.cu does, for many keys and heads of 48, 64 or 128
 * elements of two bytes, by the products of GPUs of compute capability 9.0, of which a group of
 * four warps makes one together. They are twice as fast, and read keys and values from shared
 * memory where they lie.
 *
 * A block has K_ROWS rows, 64 for each of its groups. A step takes KEYS keys; those and their
 * values are a stage of a ring. In shared memory lie
 *
 *     q          [K_ROWS] rows
 *     k, v       [KEYS] rows of each stage, with K_MASKED then
 *     masks      [K_ROWS] rows of the stage's keys, where they are copied
 *     rows       what is known of the rows of each warp
 *     added      with K_MASKED, [added_keys] floats, as attention_direct.cu has them
 *     shown      with K_BLOCKS, which steps are seen (group_blocks.h)
 *
 * q, k and v in parts and lines as group_products.h has them. So are masks, of as many keys.
 *
 * A group that has done with its keys before the block has multiplies by its last values one step
 * later, while they are still there.
 *
 * With K_BLOCKS keys are seen by blocks of 64 or a multiple of that. A block of lanes has rows of
 * one head only, and takes no steps but those that one of them sees.
 *
 * The products of a step's weights with its values come behind the next step's products with keys,
 * and go on while these become weights. Both are live at a time then, which NVRTC 13.0 needs to
 * keep queries and weights in registers of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"

#define MMA_KEYS     K_GROUP_KEYS
#define MMA_ROW_SETS 1
#define MMA_KEEP_Q   1
#include "kernel/attention/mma.h"
#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"

#if K_GROUP_MATRIX

#include "kernel/attention/mma_half.h"

#include "kernel/attention/direct_mask.h"
#include "kernel/attention/group_blocks.h"
#include "kernel/attention/group_products.h"

enum {
    G_LANES = K_GROUP_LANES(K_ROWS),
    G_AHEAD = K_GROUP_AHEAD,
    G_PIECES = G_PARTS * G_LINE / G_PIECE, /* of a row's lines */
    G_COPIED = G_LANES / G_PIECES,         /* rows that a block copies at once */
    G_Q = K_ROWS * G_LINE,                 /* a part of the queries */
    G_MASKS = K_MASKED ? K_GROUP_MASKS(K_ROWS) : 0,
    G_STAGE = 2 * G_TILE + G_MASKS,
    G_MASK_PIECES = G_LINE / G_PIECE,
};

/* What a lane copies of each tile: a piece of every so many rows. */
typedef struct g_share {
    const T *from[2]; /* keys and values of the block's first row of all */
    int32_t row, d;
    int32_t spot; /* in a tile */
} g_share;

K_FN g_share g_share_of(const mp_attention_args *args, const mma_block *at) {
    const int32_t lane = (int32_t)threadIdx.x;
    g_share share;
    share.row = lane / G_PIECES;
    share.d = lane % G_PIECES * PIECE;
    share.spot = g_spot(share.row, lane % G_PIECES, G_PART);
    const int64_t head = K_BLOCKS ? a_divide(at->kv_head, args->key_heads_by) : at->kv_head;
    share.from[0] = (const T *)args->k + at->entry * args->k_stride[0] + head * args->k_stride[1];
    share.from[1] = (const T *)args->v + at->entry * args->v_stride[0] + head * args->v_stride[1];
    return share;
}

/* Keys from `done` on, and their values; those that are not there become 0. */
K_FN void g_fill(const mp_attention_args *args, const g_share *share, int32_t done, int32_t length,
                 uint8_t *stage) {
    if (share->d >= HEAD) {
        return;
    }
    K_UNROLL for (int32_t s = 0; s < 2; s++) {
        const int32_t stride = (int32_t)(s == 0 ? args->k_stride[2] : args->v_stride[2]);
        const int32_t size = s == 0 ? args->head_size : args->v_head_size;
        const int32_t there = share->d < size ? length - done : 0;
        const T *from = share->from[s] + (int64_t)(done + share->row) * stride + share->d;
        uint8_t *to = stage + s * G_TILE + share->spot;
        K_UNROLL for (int32_t r = 0; r < KEYS; r += G_COPIED) {
            const int is = r + share->row < there;
            k_copy_begin(to + r * G_LINE, is ? from : share->from[s], is ? G_PIECE : 0);
            from += (int64_t)G_COPIED * stride;
        }
    }
}

/* The same of masks, from key `key` on. */
K_FN void g_fill_masks(const mp_attention_args *args, const direct_row *rows, int32_t key,
                       uint8_t *to) {
    const uint16_t *mask = (const uint16_t *)args->rule.mask;
    const int32_t row = (int32_t)threadIdx.x / G_MASK_PIECES;
    const int32_t piece = (int32_t)threadIdx.x % G_MASK_PIECES, first = key + piece * PIECE;
    const int32_t left = mma_mask_last(&args->rule) + 1 - first;
    const uint32_t count = left <= 0 ? 0 : left < PIECE ? (uint32_t)left * 2 : G_PIECE;
    to += g_spot(row, piece, 0);
    K_UNROLL for (int32_t r = 0; r < K_ROWS; r += G_LANES / G_MASK_PIECES) {
        k_copy_begin(to + r * G_LINE, mask + (count > 0 ? rows[row + r].mask + first : 0), count);
    }
}

/* Masks of the warp's rows, as mma_mask_load has them. */
K_FN void g_masks(const uint8_t *masks, uint32_t (*mask)[MASK_WORDS]) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const int32_t row = (int32_t)threadIdx.x / LANES * ROWS + lane % ROWS;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n += 2) {
        uint32_t words[4];
        k_matrices_load(words, masks + g_spot(row, n + lane / ROWS, 0));
        K_UNROLL for (int32_t i = 0; i < 4; i++) {
            mask[n + i / 2][i % 2] = words[i];
        }
    }
}

K_FN void g_copy_queries(const mp_attention_args *args, const direct_row *rows, uint8_t *to) {
    const int32_t lane = (int32_t)threadIdx.x, row = lane / G_PIECES;
    const int32_t d = lane % G_PIECES * PIECE, there = d < args->head_size;
    const T *from = (const T *)args->q + (there ? d : 0);
    to += g_spot(row, lane % G_PIECES, G_Q);
    K_UNROLL for (int32_t r = 0; r < K_ROWS; r += G_COPIED) {
        k_copy_begin(to + r * G_LINE, from + rows[row + r].query, there ? G_PIECE : 0);
    }
}

/* The warp's rows as left operands. */
K_FN void g_keep(const uint8_t *q, uint32_t (*kept)[4]) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const int32_t row = (int32_t)threadIdx.x / LANES * ROWS + lane % ROWS;
    K_UNROLL for (int32_t d = 0; d < HEAD / DEPTH; d++) {
        k_matrices_load(kept[d], q + g_spot(row, d * 2 + lane / ROWS, G_Q));
    }
}

/* Keys that any of the group's rows sees. */
K_FN direct_span g_look(const direct_row *rows) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const direct_row *one = rows + k_group_number() * (G_GROUP / LANES * ROWS) + lane;
    const direct_row *two = one + LANES;
    const int32_t from = one->from < two->from ? one->from : two->from;
    const int32_t to = one->to > two->to ? one->to : two->to;
    const direct_span span = {__reduce_min_sync(MMA_ALL, from), __reduce_max_sync(MMA_ALL, to), 0,
                              0};
    return span;
}

K_FN void mma_run(const mp_attention_args *args, mma_block *at, uint8_t *shared) {
    const k_score_rule *rule = &args->rule;
    const int32_t lane = (int32_t)threadIdx.x % LANES, warp = (int32_t)threadIdx.x / LANES;
    const int32_t first = warp * ROWS;
    const float factor = MMA_LOG2_E * (K_MASKED ? 1 : (float)rule->scale);
    uint8_t *const queries = shared, *const ring = queries + G_PARTS * G_Q;
    direct_row *const all_rows = (direct_row *)(void *)(ring + G_AHEAD * G_STAGE);
    direct_row *const rows = all_rows + first;
    float *const added = (float *)(void *)(all_rows + K_ROWS);
    uint32_t *const shown = (uint32_t *)(void *)(all_rows + K_ROWS);
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(ring);
    g_share share = g_share_of(args, at);
    const mma_line line = direct_begin(args, at, first, ROWS, rows);
    const int32_t copies_masks = K_MASKED && args->row_masks == K_ROW_MASKS_COPIED;
    if (copies_masks) {
        at->from -= at->from % PIECE; /* rows see none of these */
    }
    share.from[0] += at->from * args->k_stride[2];
    share.from[1] += at->from * args->v_stride[2];
    const int32_t length = at->to - at->from;
    g_copy_queries(args, all_rows, queries);
    int32_t done = 0, next = KEYS; /* with K_BLOCKS, the next step is any behind this one */
    if (K_BLOCKS) {
        gb_show(rule, at, length, shown);
        done = gb_next(shown, 0, length);
        next = gb_next(shown, done + KEYS, length);
    }
    K_ONE_COPY for (int32_t i = 0; i < G_AHEAD - 2; i++) {
        const int32_t from = !K_BLOCKS ? i * KEYS : i == 0 ? done : next;
        if (from < length) {
            g_fill(args, &share, from, length, ring + i * G_STAGE);
            if (copies_masks) {
                g_fill_masks(args, all_rows, at->from + i * KEYS, ring + i * G_STAGE + 2 * G_TILE);
            }
        }
        k_copies_group();
    }
    const direct_span seen = direct_look(args, at, &line, rows + lane % ROWS);
    if (K_MASKED) {
        direct_add_up(args, at, added);
    }
    if (K_BLOCKS && lane < ROWS) {
        rows[lane].kind = gb_kind(rule, at, first + lane);
    }
    mma_state state;
    mma_clear(&state);
    state.top[0] = state.top[1] = LOWEST;
    uint32_t kept[HEAD / DEPTH][4], weights[KEYS / STEP][4];
    K_COPIES_WAIT(G_AHEAD - 3);
    k_group_copies_seen();
    __syncthreads();
    g_keep(queries, kept);
    const direct_span group = g_look(all_rows);
    const int32_t group_first = k_group_number() * (G_GROUP / LANES * ROWS);
    const uint32_t kinds = K_BLOCKS ? gb_kinds(rule, at, group_first, G_GROUP / LANES * ROWS) : 0;
    int32_t stage = 0;
    uint32_t before = 0; /* values whose weights are known, of the step before */
    K_ONE_COPY while (done < length) {
        const int32_t key = at->from + done, end = key + KEYS, mine = key + lane % 4 * 2;
        const int32_t far =
            K_BLOCKS ? gb_next(shown, next + KEYS, length) : done + (G_AHEAD - 2) * KEYS;
        const uint32_t takes = K_BLOCKS ? gb_seen(shown, done) & kinds : 0;
        const uint32_t keys = place + (uint32_t)(stage * G_STAGE);
        if (done > 0) {
            K_COPIES_WAIT(G_AHEAD - 3);
            k_group_copies_seen();
            __syncthreads(); /* and all groups have done with the step before the last one */
        }
        if (far < length) {
            uint8_t *const to = ring + (stage + G_AHEAD - 2) % G_AHEAD * G_STAGE;
            g_fill(args, &share, far, length, to);
            if (copies_masks) {
                g_fill_masks(args, all_rows, at->from + far, to + 2 * G_TILE);
            }
        }
        k_copies_group();
        if (key < group.to && end > group.from && (!K_BLOCKS || takes != 0)) {
            float score[KEY_SIDES][4], shrink[2];
            uint32_t mask[KEY_SIDES][MASK_WORDS];
            g_scores(kept, keys, score);
            k_group_batch();
            if (copies_masks) {
                g_masks(ring + stage * G_STAGE + 2 * G_TILE, mask);
            } else if (K_MASKED && args->row_masks) {
                const int32_t last = mma_mask_last(rule);
                mma_mask_load(rule, rows[lane / 4].mask, mine, last, mask, 0);
                mma_mask_load(rule, rows[lane / 4 + SIDE].mask, mine, last, mask, 1);
            }
            if (before != 0) {
                g_values(weights, before, &state);
                k_group_batch();
                k_group_wait_but_one();
            } else {
                k_group_wait();
            }
            if (K_MASKED) {
                direct_masks(args, (float)rule->scale, mask, added + (mine - at->from), score);
            }
            if (key < seen.all_from || end > seen.all_to) {
                direct_hide(rows + lane / 4, mine, score);
            }
            if (takes != kinds) {
                gb_hide(rows + lane / 4, takes, score);
            }
            const int32_t rises = g_weights(factor, score, &state, shrink);
            k_group_wait();
            if (rises) {
                g_shrink(shrink, &state);
            }
            g_pack(score, weights);
            before = keys + G_TILE;
        } else if (K_ROWS > 64 && before != 0) {
            g_values(weights, before, &state);
            k_group_end();
            before = 0;
        }
        stage = stage + 1 < G_AHEAD ? stage + 1 : 0;
        done = K_BLOCKS ? next : done + KEYS;
        next = far;
    }
    if (before != 0) {
        g_values(weights, before, &state);
        k_group_end();
    }
    state.top[0] *= K_MASKED ? 1 : 1 / MMA_LOG2_E;
    state.top[1] *= K_MASKED ? 1 : 1 / MMA_LOG2_E;
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        state.total[r] += __shfl_xor_sync(MMA_ALL, state.total[r], 1);
        state.total[r] += __shfl_xor_sync(MMA_ALL, state.total[r], 2);
    }
    direct_store(args, at, first + lane / 4, rows + lane / 4, &state);
    K_COPIES_WAIT(0);
    __syncthreads(); /* shared memory is free for the next block */
}

#endif

K_BLOCK_KERNEL_LATE_OF(K_GROUP_LANES(K_ROWS), K_GROUP_BLOCKS(K_HEAD, K_ROWS, K_MASKED),
                       mp_attention_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    const uint32_t begin = (uint32_t)__cvta_generic_to_shared(shared);
    const k_score_rule *rule = &args.rule;
    const uint32_t units = (uint32_t)rule->batch * (uint32_t)rule->kv_heads;
    for (uint32_t i = blockIdx.x; i < units * (uint32_t)args.row_blocks; i += gridDim.x) {
        mma_block at = mma_place(&args, i);
        mma_run(&args, &at, shared + (-begin & (K_GROUP_ALIGN - 1)));
    }
#else
    (void)args;
#endif
}
