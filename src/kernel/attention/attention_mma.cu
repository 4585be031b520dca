/* attention_mma.cu - attention for many queries by tensor cores, for types of two bytes, and for
 * float (K_FLOAT) by TF32, and heads of up to K_HEAD elements, a multiple of 16. A warp has 16
 * rows: it multiplies them with tiles of keys, keeps the scores in registers, where they become the
 * weights that the next product reads, and has a running maximum and sum of each row. Heads that
 * share a key head are rows of one block.
 *
 *     q          [tile_rows][PITCH]
 *     k, v       [tile_keys][PITCH] each, and once more where there are several tiles: one is
 *                filled while the other is worked on
 *
 * A block has tile_rows / 16 warps side by side, and as many such sets as tile_keys has KEYS, which
 * take neighbouring keys of a tile and add up what they found at the end. PITCH is an odd number of
 * 16 bytes, so that eight rows lie in different banks. The products are exact to float; the weights
 * are rounded to T before the second one, and floats to TF32 before both.
 *
 * Where there is no such unit (the emulated device, GPUs before 8.0) a lane takes rows by plain
 * loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/mma.h"
#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#if K_FLOAT
#include "kernel/attention/mma_float.h"
#else
#include "kernel/attention/mma_half.h"
#endif
#include "kernel/attention/mma_rows.h"
#include "kernel/attention/mma_rule.h"

/* ---- softmax ---- */

/* Scores, in `unit`, become weights, each by a difference, which large masks leave exact, and a
 * power of two. A NaN is passed over for the maximum and stays in the sum. */
K_FN void mma_weights(float unit, float (*score)[4], mma_state *state) {
    const float log2_e = MMA_LOG2_E * unit;
    float shrink[2];
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        float top = state->top[r], other = A_NONE; /* two chains take half as long */
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n += 2) {
            top = fmaxf(top, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            other = fmaxf(other, fmaxf(score[n + 1][2 * r], score[n + 1][2 * r + 1]));
        }
        top = fmaxf(top, other);
        top = fmaxf(top, __shfl_xor_sync(MMA_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(MMA_ALL, top, 2));
        const float base = mma_base(top);
        float sum = 0;
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 2 * r; e < 2 * r + 2; e++) {
                score[n][e] = k_exp2((score[n][e] - base) * log2_e);
                sum += score[n][e];
            }
        }
        shrink[r] = mma_power(state->top[r], base, log2_e);
        state->top[r] = top;
        state->total[r] = state->total[r] * shrink[r] + sum;
    }
    if (__any_sync(MMA_ALL, shrink[0] != 1 || shrink[1] != 1)) { /* seldom, after some tiles */
        K_UNROLL for (int32_t d = 0; d < HEAD_SIDES; d++) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                state->out[d][e] *= shrink[e / 2];
            }
        }
    }
}

/* What a lane copies of K [0] and V [1]. */
typedef struct mma_feed {
    mma_share share;
    mma_side side[2];
} mma_feed;

K_FN mma_feed mma_feed_of(const mp_attention_args *args, const mma_block *at) {
    const int64_t *const k = args->k_stride, *const v = args->v_stride;
    mma_feed feed;
    feed.share = mma_shared_out(args);
    feed.side[0] = mma_side_of(
        &feed.share, (const T *)args->k + at->entry * k[0] + at->kv_head * k[1] + at->from * k[2],
        k[2], args->head_size);
    feed.side[1] = mma_side_of(
        &feed.share, (const T *)args->v + at->entry * v[0] + at->kv_head * v[1] + at->from * v[2],
        v[2], args->v_head_size);
    return feed;
}

/* Tile `i` of K and V, the next one, a group of copies each; groups of nothing where there is none.
 */
K_FN void mma_fill(const mp_attention_args *args, const mma_block *at, mma_feed *feed, int32_t i,
                   T *shared) {
    const int32_t count = args->tile_keys, left = at->to - at->from - i * count;
    T *to = shared + (args->tile_rows + i % 2 * 2 * count) * PITCH;
    K_UNROLL for (int32_t s = 0; s < 2; s++) {
        if (left > 0) {
            mma_copy_keys(&feed->share, &feed->side[s], count, left, to + s * count * PITCH);
        }
        k_copies_group();
    }
    __syncwarp(); /* lanes that had nothing to copy are with the others again */
}

/* How a lane's rows stand to the keys of its warp from `key` on: 0 sees none, 2 sees all. */
K_FN int32_t mma_sees(const mma_row *row, int32_t key) {
    const int32_t end = key + KEYS;
    const int32_t all =
        key >= row[0].from && end <= row[0].to && key >= row[1].from && end <= row[1].to;
    const int32_t any =
        (key < row[0].to && end > row[0].from) || (key < row[1].to && end > row[1].from);
    return __all_sync(MMA_ALL, all) ? 2 : __any_sync(MMA_ALL, any) ? 1 : 0;
}

K_FN void mma_store(const mp_attention_args *args, const mma_block *at, int32_t first,
                    const mma_state *state) {
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        if (first + r * SIDE >= at->row_count) {
            continue;
        }
        const mma_line line = mma_line_at(args, at, first + r * SIDE);
        const float norm = mma_norm(a_sink(&args->rule, line.head), state->top[r], state->total[r]);
        T *to = (T *)args->out + at->entry * args->out_stride[0] + line.head * args->out_stride[1] +
                line.query * args->out_stride[2];
        mma_write(to, args->v_head_size, state, r, norm);
    }
}

K_FN void mma_run(const mp_attention_args *args, mma_block *at, T *shared) {
    const k_score_rule *rule = &args->rule;
    mma_reach(args, at);
    const int32_t lane = (int32_t)threadIdx.x % LANES, warp = (int32_t)threadIdx.x / LANES;
    const int32_t row_warps = args->tile_rows / ROWS, count = args->tile_keys;
    const int32_t row_warp = warp % row_warps, set = warp / row_warps;
    const int32_t first = row_warp * ROWS + lane / 4; /* of the lane's two rows */
    const int32_t tiles = at->to > at->from ? (at->to - at->from + count - 1) / count : 0;
    mma_feed feed = mma_feed_of(args, at);
    const mma_asks asks = mma_asked(rule);
    const T *q = shared + row_warp * ROWS * PITCH;
    int32_t key_place = set * KEYS * PITCH + mma_key_place();
    int32_t value_place = (count + set * KEYS) * PITCH + mma_value_place();
    K_HOLD(key_place);
    K_HOLD(value_place);
    mma_copy_queries(args, at, &feed.share, shared);
    mma_fill(args, at, &feed, 0, shared);
    mma_fill(args, at, &feed, 1, shared);
    const mma_row row[2] = {mma_row_at(args, at, first), mma_row_at(args, at, first + SIDE)};
    uint32_t kept[HEAD / DEPTH][4];
    mma_state state;
    mma_clear(&state);
    K_ONE_COPY for (int32_t i = 0; i < tiles; i++) {
        T *tile = shared + (args->tile_rows + i % 2 * 2 * count) * PITCH;
        const int32_t key = at->from + i * count + set * KEYS, mine = key + lane % 4 * 2;
        const int32_t seen = mma_sees(row, key);
        float score[KEY_SIDES][4];
        mma_marks marks;
        if (seen && asks.mask_early) {
            mma_mask_load(rule, row[0].mask_row, mine, asks.last, marks.mask, 0);
            mma_mask_load(rule, row[1].mask_row, mine, asks.last, marks.mask, 1);
        }
        if (seen && asks.padding_early) {
            marks.padding = mma_padding_load(rule, at, key, asks.last);
        }
        if (i == 0) {
            K_COPIES_WAIT(3);
        } else {
            K_COPIES_WAIT(0);
        }
        __syncthreads(); /* and the tile before has been read */
        if (i == 0 && KEEP_Q) {
            K_UNROLL for (int32_t d = 0; d < HEAD; d += DEPTH) {
                mma_query(q, d, kept[d / DEPTH]);
            }
        }
        if (i > 0) {
            mma_fill(args, at, &feed, i + 1, shared);
        }
        if (seen) {
            mma_scores(q, kept, tile + key_place, score);
            if (!asks.plain) {
                mma_rule(args, at, row, first, mine, &asks, &marks, score);
            }
            if (seen == 1) {
                mma_hide(row, mine, score);
            }
            mma_weights(asks.unit, score, &state);
        }
        if (i == 0) {
            K_COPIES_WAIT(2);
            __syncthreads();
        }
        if (seen) {
            mma_values(tile + value_place, score, &state);
        }
    }
    K_COPIES_WAIT(0);
    state.top[0] *= asks.unit;
    state.top[1] *= asks.unit;
    mma_meet(row_warps, row_warp, set, count / KEYS,
             (float *)(void *)(shared + args->tile_rows * PITCH), &state);
    if (set == 0) {
        mma_store(args, at, first, &state);
    }
    __syncthreads(); /* shared memory is free for the next block */
}

#else

#include "kernel/attention/mma_plain.h"

#endif

/* Twelve warps on a multiprocessor, or eight where heads are long. */
#define MMA_REGISTERS (K_HEAD <= 64 ? 168 : 255)

#define MMA_LANES (K_HEAD <= 64 ? 384 : 256)

K_BLOCK_KERNEL_WITHIN(MMA_REGISTERS, MMA_LANES, mp_attention_args, args) {
    K_SHARED(T, shared);
    const k_score_rule *rule = &args.rule;
    const uint32_t units = (uint32_t)rule->batch * (uint32_t)rule->kv_heads;
    for (uint32_t i = blockIdx.x; i < units * (uint32_t)args.row_blocks; i += gridDim.x) {
        mma_block at = mma_place(&args, i);
        mma_run(&args, &at, shared);
    }
}
