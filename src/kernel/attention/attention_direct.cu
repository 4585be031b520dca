/* attention_direct.cu - attention for many queries by tensor cores where scores are products but
 * for a factor above 0 and, with K_MASKED, what masks add: no soft cap. Without masks the factor
 * becomes part of the powers of two that the weights are. Which keys a row sees may be anything
 * that a_visible says. Blocks are those of attention_mma.cu; in shared memory they have
 *
 *     rows       what is known of the rows of each warp
 *     added      [added_keys] floats: what masks and padding add to the scores of keys, where it is
 *                the same for all rows of the block
 *     q, k, v    as there
 *
 * Rows that have masks of their own load them as attention_mma.cu does.
 *
 * A warp has K_ROWS rows. With 32 what it reads of keys and values serves twice as many products,
 * which else wait for shared memory; with 16 there are more warps, for attention that leaves most
 * of a GPU idle, and more of them on a multiprocessor. A warp's share of a tile is one step of KEYS
 * keys or more, one after the other.
 *
 * Weights are powers above a base: a row's maximum when it last rose by more than LEAP powers of
 * two. So sums are scaled in the first steps, and then hardly ever. In float, and in T of which
 * 2^LEAP is far from the largest number, weights have the same digits above any base.
 *
 * Attention of a few hundred tokens is over before its blocks have found out what they are for. So
 * all that follows from the arguments alone is computed before the kernel before has ended.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"

#define MMA_KEYS     K_DIRECT_KEYS(K_HEAD, K_ROWS, sizeof(T))
#define MMA_ROW_SETS (K_ROWS / K_MMA_ROWS)
#define MMA_KEEP_Q   (K_HEAD * K_ROWS <= 96 * 32)
#include "kernel/attention/mma.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#if K_FLOAT
#include "kernel/attention/mma_float.h"
#else
#include "kernel/attention/mma_half.h"
#endif
#include "kernel/attention/direct.h"
#include "kernel/attention/direct_mask.h"

/* ---- copies ---- */

K_FN void direct_copy_queries(const mp_attention_args *args, const direct_row *rows, T *to) {
    const int32_t each = (int32_t)(blockDim.x / PIECES), row = (int32_t)(threadIdx.x / PIECES);
    const int32_t d = (int32_t)(threadIdx.x % PIECES) * PIECE, there = d < args->head_size;
    const T *from = (const T *)args->q + (there ? d : 0);
    if (row < each) {
        K_ONE_COPY for (int32_t r = row; r < args->tile_rows; r += each) {
            k_copy_begin(to + r * PITCH + d, from + rows[r].query, there ? 16 : 0);
        }
    }
}

/* Rows `done` to `length` of K and V, as many as a tile has, a group of copies each; groups of
 * nothing where none are left. Places are found anew each time: no registers are left to remember
 * the last ones. */
K_FN void direct_fill(const mp_attention_args *args, const T *const *first, int32_t done,
                      int32_t length, T *tile) {
    const int32_t count = args->tile_keys, rows = (int32_t)(blockDim.x / PIECES);
    const int32_t row = (int32_t)(threadIdx.x / PIECES);
    const int32_t d = (int32_t)(threadIdx.x % PIECES) * PIECE;
    K_UNROLL for (int32_t s = 0; s < 2; s++) {
        const int32_t stride = (int32_t)(s == 0 ? args->k_stride[2] : args->v_stride[2]);
        const int32_t size = s == 0 ? args->head_size : args->v_head_size;
        const int32_t there = d < size ? length - done : 0;
        if (done < length && row < rows) {
            const T *from = first[s] + (int64_t)(done + row) * stride + d;
            T *to = tile + (s * count + row) * PITCH + d;
            K_ONE_COPY for (int32_t r = row; r < count; r += rows) {
                k_copy_begin(to, from, r < there ? 16 : 0);
                from += (int64_t)rows * stride;
                to += rows * PITCH;
            }
        }
        k_copies_group();
    }
    __syncwarp(); /* lanes that had nothing to copy are with the others again */
}

K_FN void direct_keep(const T *q, uint32_t (*kept)[4]) {
    K_UNROLL for (int32_t s = 0; KEEP_Q && s < ROW_SETS; s++) {
        K_UNROLL for (int32_t d = 0; d < HEAD; d += DEPTH) {
            mma_query(q + s * ROWS * PITCH, d, kept[s * (HEAD / DEPTH) + d / DEPTH]);
        }
    }
}

K_FN void mma_run(const mp_attention_args *args, mma_block *at, T *shared) {
    const k_score_rule *rule = &args->rule;
    const int32_t lane = (int32_t)threadIdx.x % LANES, warp = (int32_t)threadIdx.x / LANES;
    const int32_t row_warps = args->tile_rows / K_ROWS, count = args->tile_keys;
    const int32_t row_warp = warp % row_warps, set = warp / row_warps;
    const int32_t sets = (int32_t)blockDim.x / LANES / row_warps, share = count / sets;
    const int32_t first = row_warp * K_ROWS; /* of the warp's rows */
    const float factor = MMA_LOG2_E * (K_MASKED ? 1 : (float)rule->scale);
    uint32_t scale = __float_as_uint((float)rule->scale);
    direct_row *const all_rows = (direct_row *)(void *)shared, *rows = all_rows + warp * K_ROWS;
    float *const added = (float *)(void *)(all_rows + sets * args->tile_rows);
    T *const queries = (T *)(void *)(added + (K_MASKED ? args->added_keys : 0));
    T *const q = queries + first * PITCH, *const tiles = queries + args->tile_rows * PITCH;
    const T *from[2] = {
        (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1],
        (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1]};
    const T *keys = tiles + set * share * PITCH + mma_key_place();
    const T *values = tiles + (count + set * share) * PITCH + mma_value_place();
    K_HOLD_PLACE(keys);
    K_HOLD_PLACE(values);
    K_HOLD_PLACE(from[0]);
    K_HOLD_PLACE(from[1]);
    if (K_MASKED) {
        K_HOLD(scale);
    }
    const mma_line line = direct_begin(args, at, first, K_ROWS, rows);
    from[0] += at->from * args->k_stride[2];
    from[1] += at->from * args->v_stride[2];
    const int32_t length = at->to - at->from;
    direct_copy_queries(args, all_rows, queries);
    K_ONE_COPY for (int32_t i = 0; i < 2; i++) {
        direct_fill(args, from, i * count, length, tiles + i * 2 * count * PITCH);
    }
    const direct_span seen = direct_look(args, at, &line, rows + lane % K_ROWS);
    if (K_MASKED) {
        direct_add_up(args, at, added);
    }
    mma_state state[ROW_SETS];
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        mma_clear(&state[s]);
        state[s].top[0] = state[s].top[1] = LOWEST;
    }
    uint32_t kept[ROW_SETS * (HEAD / DEPTH)][4];
    if (!K_MASKED) { /* masks of rows are asked for before */
        K_COPIES_WAIT(3);
        __syncthreads();
        direct_keep(q, kept);
    }
    int32_t tile = 0; /* where it lies: there are two */
    K_ONE_COPY for (int32_t done = 0; done < length; done += count) {
        if (done > 0) {
            K_COPIES_WAIT(0);
            __syncthreads(); /* and the tile before has been read */
            direct_fill(args, from, done + count, length, tiles + (2 * count * PITCH - tile));
        }
        K_ONE_COPY for (int32_t step = 0; step < share; step += KEYS) {
            const int32_t key = at->from + set * share + done + step, end = key + KEYS;
            const int32_t place = tile + step * PITCH, mine = key + lane % 4 * 2;
            const int32_t any = key < seen.to && end > seen.from;
            float score[ROW_SETS * KEY_SIDES][4];
            uint32_t mask[KEY_SIDES][MASK_WORDS];
            if (K_MASKED && any && args->row_masks) {
                const int32_t last = mma_mask_last(rule);
                mma_mask_load(rule, rows[lane / 4].mask, mine, last, mask, 0);
                mma_mask_load(rule, rows[lane / 4 + SIDE].mask, mine, last, mask, 1);
            }
            if (K_MASKED && done + step == 0) {
                K_COPIES_WAIT(3);
                __syncthreads();
                direct_keep(q, kept);
            }
            if (any) {
                mma_scores(q, kept, keys + place, score);
                if (K_MASKED) {
                    direct_masks(args, __uint_as_float(scale), mask, added + (mine - at->from),
                                 score);
                }
                if (key < seen.all_from || end > seen.all_to) {
                    direct_hide(rows + lane / 4, mine, score);
                }
                direct_weights(factor, score, state);
            }
            if (done + step == 0) {
                K_COPIES_WAIT(2);
                __syncthreads();
            }
            if (any) {
                mma_values(values + place, score, state);
            }
        }
        tile = 2 * count * PITCH - tile;
    }
    K_COPIES_WAIT(0);
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        state[s].top[0] *= K_MASKED ? 1 : 1 / MMA_LOG2_E;
        state[s].top[1] *= K_MASKED ? 1 : 1 / MMA_LOG2_E;
        mma_meet(row_warps, row_warp, set, sets, (float *)(void *)tiles, &state[s]);
    }
    if (set == 0) {
        direct_store(args, at, first + lane / 4, rows + lane / 4, state);
    }
    __syncthreads(); /* shared memory is free for the next block */
}

#else

#include "kernel/attention/mma_plain.h"

#endif

K_BLOCK_KERNEL_LATE_WITHIN(K_DIRECT_REGISTERS(K_HEAD, K_ROWS, sizeof(T), K_MASKED),
                           K_DIRECT_WARPS(K_HEAD, K_ROWS, sizeof(T), K_MASKED) * 32,
                           mp_attention_args, args) {
    K_SHARED(T, shared);
    const k_score_rule *rule = &args.rule;
    const uint32_t units = (uint32_t)rule->batch * (uint32_t)rule->kv_heads;
    for (uint32_t i = blockIdx.x; i < units * (uint32_t)args.row_blocks; i += gridDim.x) {
        mma_block at = mma_place(&args, i);
        mma_run(&args, &at, shared);
    }
}
