/* attention_direct.cu - attention for many queries by tensor cores, for types of two bytes, where
 * products are scores but for a factor above 0, which becomes part of the powers of two that the
 * weights are: no mask, no padding, no soft cap. Which keys a row sees may be anything that
 * a_visible says. Blocks are those of attention_mma.cu, and so is what they have in shared memory.
 *
 * A warp has K_ROWS rows. With 32 what it reads of keys and values serves twice as many products,
 * which else wait for shared memory; with 16 there are more warps, for attention that leaves most
 * of a GPU idle, and more of them on a multiprocessor. A warp's share of a tile is one step of KEYS
 * keys or more, one after the other.
 *
 * Weights are powers above a base: a row's maximum when it last rose by more than LEAP powers of
 * two. So sums are scaled in the first steps, and then hardly ever. In float, and in T of which
 * 2^LEAP is far from the largest number, weights have the same digits above any base.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"

#define MMA_KEYS     K_DIRECT_KEYS(K_HEAD, K_ROWS)
#define MMA_ROW_SETS (K_ROWS / K_MMA_ROWS)
#define MMA_KEEP_Q   (K_HEAD * K_ROWS <= 96 * 32)
#include "kernel/attention/mma.h"
#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#include "kernel/attention/mma_half.h"
#include "kernel/attention/mma_rows.h"

#define LEAP   8.0F
#define LOWEST (-1e30F) /* the base of a row that has not seen a key */

/* What lanes of a warp leave of its rows for each other, in shared memory: a row is looked at by
 * one lane, and four have its sums. */
typedef union direct_row {
    struct {
        int32_t from, to; /* keys that it sees */
    } seen;
    struct {
        float top, total;
    } sums;
    struct {
        int64_t place; /* of the result */
        float norm;
    } result;
} direct_row;
static_assert(sizeof(direct_row) == K_DIRECT_ROW_BYTES, "a row is as long as it is for the plan");

/* Of all rows of a warp: keys that any of them sees, and those that all see. */
typedef struct direct_span {
    int32_t from, to;
    int32_t all_from, all_to;
} direct_span;

K_FN int32_t direct_least(int32_t x) {
    K_UNROLL for (int32_t bit = 1; bit < LANES; bit *= 2) {
        const int32_t other = __shfl_xor_sync(MMA_ALL, x, bit);
        x = other < x ? other : x;
    }
    return x;
}

/* `row` is the lane's one. */
K_FN direct_span direct_look(const mp_attention_args *args, const mma_block *at, int32_t place,
                             direct_row *row) {
    const mma_row mine = mma_row_at(args, at, place);
    if (threadIdx.x % LANES < K_ROWS) {
        row->seen.from = mine.from;
        row->seen.to = mine.to;
    }
    __syncwarp();
    const direct_span span = {direct_least(mine.from), -direct_least(-mine.to),
                              -direct_least(-mine.from), direct_least(mine.to)};
    return span;
}

/* Rows that rose: their new base, and what there is of them by it. */
K_FN void direct_rise(float factor, const float (*most)[2], mma_state *state) {
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        float shrink[2];
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            const float old = state[s].top[r];
            const float fresh = fmaf(most[s][r], factor, -old) > LEAP ? most[s][r] * factor : old;
            shrink[r] = k_exp2(old - fresh);
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

/* Scores, of which `factor` makes powers of two, become weights. The base of a row is its `top`. A
 * NaN is passed over for the maximum and stays in the sum. */
K_FN void direct_weights(float factor, float (*score)[4], mma_state *state) {
    float most[ROW_SETS][2];
    int32_t rises = 0;
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        float(*const mine)[4] = score + s * KEY_SIDES;
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            float one = fmaxf(mine[0][2 * r], mine[0][2 * r + 1]);
            float two = fmaxf(mine[1][2 * r], mine[1][2 * r + 1]); /* chains of half the length */
            K_UNROLL for (int32_t n = 2; n < KEY_SIDES; n += 2) {
                one = fmaxf(one, fmaxf(mine[n][2 * r], mine[n][2 * r + 1]));
                two = fmaxf(two, fmaxf(mine[n + 1][2 * r], mine[n + 1][2 * r + 1]));
            }
            most[s][r] = fmaxf(one, two);
        }
    }
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            most[s][r] = fmaxf(most[s][r], __shfl_xor_sync(MMA_ALL, most[s][r], 1));
            most[s][r] = fmaxf(most[s][r], __shfl_xor_sync(MMA_ALL, most[s][r], 2));
            rises |= fmaf(most[s][r], factor, -state[s].top[r]) > LEAP;
        }
    }
    if (__any_sync(MMA_ALL, rises)) {
        direct_rise(factor, most, state);
    }
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        float(*const mine)[4] = score + s * KEY_SIDES;
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            float sum[2] = {0, 0};
            K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
                K_UNROLL for (int32_t e = 0; e < 2; e++) {
                    float *const x = &mine[n][2 * r + e];
                    *x = k_exp2(fmaf(*x, factor, -state[s].top[r]));
                    sum[e] += *x;
                }
            }
            state[s].total[r] += sum[0] + sum[1];
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
            K_ONE_COPY for (int32_t r = row; r < count; r += rows) {
                const T *from = first[s] + (int64_t)(done + r) * stride + d;
                k_copy_begin(tile + (s * count + r) * PITCH + d, from, r < there ? 16 : 0);
            }
        }
        k_copies_group();
    }
    __syncwarp(); /* lanes that had nothing to copy are with the others again */
}

/* Where keys and rows do not see all of each other. `row`: the first one of the lane's sums. */
K_FN void direct_hide(const direct_row *row, int32_t key, float (*score)[4]) {
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        mma_row both[2];
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            both[r].from = row[s * ROWS + r * SIDE].seen.from;
            both[r].to = row[s * ROWS + r * SIDE].seen.to;
        }
        mma_hide(both, key, score + s * KEY_SIDES);
    }
}

/* `rows` are the warp's, of which `first` is the first in its block. */
K_FN void direct_store(const mp_attention_args *args, const mma_block *at, int32_t first,
                       direct_row *rows, const mma_state *state) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    direct_row *const mine = rows + lane % K_ROWS;
    __syncwarp(); /* the keys that rows see have been read */
    K_UNROLL for (int32_t r = 0; r < 2 * ROW_SETS; r++) {
        direct_row *const row = rows + lane / 4 + r * SIDE;
        if (lane % 4 == 0) {
            row->sums.top = state[r / 2].top[r % 2];
            row->sums.total = state[r / 2].total[r % 2];
        }
    }
    __syncwarp();
    if (lane < K_ROWS) {
        const mma_line line = mma_line_at(args, at, first + lane);
        const float norm = mma_norm(&args->rule, line.head, mine->sums.top, mine->sums.total);
        mine->result.norm = norm;
        mine->result.place = at->entry * args->out_stride[0] + line.head * args->out_stride[1] +
                             line.query * args->out_stride[2];
    }
    __syncwarp();
    K_UNROLL for (int32_t r = 0; r < 2 * ROW_SETS; r++) {
        const int32_t place = lane / 4 + r * SIDE;
        if (first + place < at->row_count) {
            mma_write((T *)args->out + rows[place].result.place, args->v_head_size, &state[r / 2],
                      r % 2, rows[place].result.norm);
        }
    }
}

K_FN void mma_run(const mp_attention_args *args, const mma_block *at, T *shared) {
    const k_score_rule *rule = &args->rule;
    const int32_t lane = (int32_t)threadIdx.x % LANES, warp = (int32_t)threadIdx.x / LANES;
    const int32_t row_warps = args->tile_rows / K_ROWS, count = args->tile_keys;
    const int32_t row_warp = warp % row_warps, set = warp / row_warps;
    const int32_t sets = (int32_t)blockDim.x / LANES / row_warps, share = count / sets;
    const int32_t first = row_warp * K_ROWS; /* of the warp's rows */
    const int32_t length = at->to - at->from;
    const float factor = MMA_LOG2_E * (float)rule->scale;
    direct_row *const all_rows = (direct_row *)(void *)shared, *rows = all_rows + warp * K_ROWS;
    T *const queries = (T *)(void *)(all_rows + sets * args->tile_rows);
    T *const q = queries + first * PITCH, *const tiles = queries + args->tile_rows * PITCH;
    const T *const from[2] = {(const T *)args->k + at->entry * args->k_stride[0] +
                                  at->kv_head * args->k_stride[1] + at->from * args->k_stride[2],
                              (const T *)args->v + at->entry * args->v_stride[0] +
                                  at->kv_head * args->v_stride[1] + at->from * args->v_stride[2]};
    const T *keys = tiles + set * share * PITCH + mma_key_place();
    const T *values = tiles + (count + set * share) * PITCH + mma_value_place();
    K_HOLD_PLACE(keys);
    K_HOLD_PLACE(values);
    const mma_share mine = mma_shared_out(args);
    mma_copy_queries(args, at, &mine, queries);
    K_ONE_COPY for (int32_t i = 0; i < 2; i++) {
        direct_fill(args, from, i * count, length, tiles + i * 2 * count * PITCH);
    }
    const direct_span seen = direct_look(args, at, first + lane % K_ROWS, rows + lane % K_ROWS);
    mma_state state[ROW_SETS];
    K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
        mma_clear(&state[s]);
        state[s].top[0] = state[s].top[1] = LOWEST;
    }
    uint32_t kept[ROW_SETS * (HEAD / DEPTH)][4];
    K_COPIES_WAIT(3);
    __syncthreads();
    if (KEEP_Q) {
        K_UNROLL for (int32_t s = 0; s < ROW_SETS; s++) {
            K_UNROLL for (int32_t d = 0; d < HEAD; d += DEPTH) {
                mma_query(q + s * ROWS * PITCH, d, kept[s * (HEAD / DEPTH) + d / DEPTH]);
            }
        }
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
            const int32_t place = tile + step * PITCH;
            const int32_t any = key < seen.to && end > seen.from;
            float score[ROW_SETS * KEY_SIDES][4];
            if (any) {
                mma_scores(q, kept, keys + place, score);
                if (key < seen.all_from || end > seen.all_to) {
                    direct_hide(rows + lane / 4, key + lane % 4 * 2, score);
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
        state[s].top[0] *= 1 / MMA_LOG2_E;
        state[s].top[1] *= 1 / MMA_LOG2_E;
        mma_meet(row_warps, row_warp, set, sets, (float *)(void *)tiles, &state[s]);
    }
    if (set == 0) {
        direct_store(args, at, first, rows, state);
    }
    __syncthreads(); /* shared memory is free for the next block */
}

#else

#include "kernel/attention/mma_plain.h"

#endif

K_BLOCK_KERNEL_WITHIN(K_DIRECT_REGISTERS(K_ROWS), K_DIRECT_WARPS(K_ROWS) * 32, mp_attention_args,
                      args) {
    K_SHARED(T, shared);
    const k_score_rule *rule = &args.rule;
    const uint32_t units = (uint32_t)rule->batch * (uint32_t)rule->kv_heads;
    for (uint32_t i = blockIdx.x; i < units * (uint32_t)args.row_blocks; i += gridDim.x) {
        const mma_block at = mma_place(&args, i);
        mma_run(&args, &at, shared);
    }
}
