/* attention_turns.cu - what attention_group.cu does, where each row sees all keys, for heads of
 * 48 or 64 elements and rows for the whole GPU.
 *
 * Products of such heads take as long as the powers of their scores, so one must go on beside the
 * other all the time. Groups of a block have 64 rows each and take turns: one asks for its
 * products, those with a step's keys and those of the last step's weights with their values, and
 * lets the next one ask while it makes weights. Two warps beside them, for keys and for values,
 * copy and do nothing else: a lane that copied and made what came visible to products would wait
 * for all of its copies. Stages of the ring have gates (stage_gate.h), a full one and an empty one,
 * so groups may be some stages apart.
 *
 * The rows of all key heads are cut into tiles of 64, and a block has neighbours. Where these are
 * of several key heads, there are several streams of keys: for each step a stage of each stream
 * follows, and groups let those pass that are not theirs. So as many tiles as all blocks have
 * groups take one round, whatever the rows of a head. Of fewer tiles each block has as many as any
 * other (`groups`), and groups without one let all stages pass. Blocks stay for further tiles,
 * whose keys come while the last ones are still worked on.
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

#include "kernel/attention/group_products.h"
#include "kernel/core/stage_gate.h"

enum {
    T_GROUPS = K_TURNS_GROUPS(K_HEAD),
    T_STAGES = K_TURNS_STAGES,
    T_STAGE = 2 * G_TILE,
    T_COPIERS = K_TURNS_COPIERS,
    T_ACROSS = G_LINE / G_PIECE, /* pieces of a row */
    T_COPIED = LANES / T_ACROSS, /* rows that a warp copies at once */
    T_TURN = 1,                  /* places to meet, one for each group */
    T_LENDS = T_GROUPS > 3       /* whether copiers leave groups their registers */
};
static_assert((T_STAGES & (T_STAGES - 1)) == 0, "a stage's number is the end of a count");
static_assert(T_STAGES >= 2 * T_GROUPS, "a group holds a stage while a step of all streams passes");
static_assert(G_PARTS == 1 && 2 * T_COPIED == SIDE, "rows are of one part, copied by halves of 8");

/* A block's memory. Gates: of full stages, and of empty ones. */
typedef struct t_place {
    const mp_attention_args *args;
    uint8_t *ring;
    uint32_t place; /* of the ring, for products: the same for all lanes, as the compiler knows */
    uint64_t *full, *empty;
} t_place;

/* Tiles that a block has at a time, from `first` to `last`. */
typedef struct t_share {
    uint32_t first, last;
    uint32_t unit; /* key head of the first one */
    int32_t streams, steps;
} t_share;

/* Keys of a key head. */
K_FN int32_t t_length(const mp_attention_args *args, uint32_t unit) {
    const k_score_rule *rule = &args->rule;
    const int64_t length = a_length(rule, k_divide(unit, args->by_kv_heads));
    return (int32_t)(length < rule->mask_keys ? length : rule->mask_keys);
}

K_FN uint32_t t_tiles(const mp_attention_args *args) {
    return (uint32_t)args->rule.batch * (uint32_t)args->rule.kv_heads * (uint32_t)args->row_blocks;
}

K_FN uint32_t t_shares(const mp_attention_args *args) {
    const uint32_t each = (uint32_t)args->groups;
    return (t_tiles(args) + each - 1) / each;
}

K_FN mma_block t_block_at(const mp_attention_args *args, uint32_t i) {
    const uint32_t unit = k_divide(i, args->by_row_blocks);
    const uint32_t place = i - unit * (uint32_t)args->row_blocks;
    mma_block at = mma_block_at(args, unit, place);
    mma_reach(args, &at);
    return at;
}

K_FN t_share t_share_at(const mp_attention_args *args, uint32_t i) {
    const uint32_t each = (uint32_t)args->groups, all = t_tiles(args), end = (i + 1) * each;
    t_share share;
    share.first = i * each;
    share.last = (end < all ? end : all) - 1;
    share.unit = k_divide(share.first, args->by_row_blocks);
    share.streams = (int32_t)(k_divide(share.last, args->by_row_blocks) - share.unit) + 1;
    share.steps = 1;
    const uint32_t alike = share.streams == 1 ? T_GROUPS : 1;
    K_ONE_COPY for (uint32_t tile = share.first; tile <= share.last; tile += alike) {
        const int32_t steps = (t_block_at(args, tile).to + KEYS - 1) / KEYS;
        share.steps = steps > share.steps ? steps : share.steps;
    }
    return share;
}

/* ---- the warps that copy ---- */

/* What a lane copies of each stage: a piece of every T_COPIED-th row. */
typedef struct t_side {
    const T *from; /* that of the first key of all */
    int64_t stride[3];
    uint8_t *to[2]; /* in the first stage, for even and odd turns */
    int32_t row, d, size;
} t_side;

/* Of keys or, with `values`, of values. */
K_FN t_side t_side_of(const t_place *at, int32_t values) {
    const mp_attention_args *args = at->args;
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const int64_t *const stride = values ? args->v_stride : args->k_stride;
    t_side side;
    side.row = lane / T_ACROSS;
    side.d = lane % T_ACROSS * PIECE;
    side.size = values ? args->v_head_size : args->head_size;
    K_UNROLL for (int32_t i = 0; i < 3; i++) {
        side.stride[i] = stride[i];
    }
    side.from = (const T *)(values ? args->v : args->k);
    K_UNROLL for (int32_t i = 0; i < 2; i++) {
        side.to[i] = at->ring + values * G_TILE +
                     g_spot(side.row + i * T_COPIED, lane % T_ACROSS, 0) - i * T_COPIED * G_LINE;
    }
    return side;
}

/* Keys of a unit from `done` on, of `length`; those that are not there become 0. */
K_FN void t_fill(const t_place *at, const t_side *side, uint32_t unit, int32_t done, int32_t length,
                 int32_t stage) {
    const uint32_t entry = k_divide(unit, at->args->by_kv_heads);
    const uint32_t head = unit - entry * (uint32_t)at->args->rule.kv_heads;
    const int32_t first = done + side->row;
    const T *from = side->from + entry * side->stride[0] + head * side->stride[1] +
                    first * side->stride[2] + side->d;
    if (done + KEYS <= length) {
        K_UNROLL for (int32_t r = 0; r < KEYS; r += T_COPIED) {
            k_copy_begin(side->to[r / T_COPIED % 2] + stage * T_STAGE + r * G_LINE, from, G_PIECE);
            from += T_COPIED * side->stride[2];
        }
        return;
    }
    K_ONE_COPY for (int32_t r = 0; r < KEYS; r += T_COPIED) {
        const int is = first + r < length;
        k_copy_begin((r & T_COPIED ? side->to[1] : side->to[0]) + stage * T_STAGE + r * G_LINE,
                     is ? from : side->from, is ? G_PIECE : 0);
        from += T_COPIED * side->stride[2];
    }
}

/* Elements of a head that the tensors have not stay 0. */
K_FN void t_clear(const t_side *side) {
    K_ONE_COPY for (int32_t stage = 0; stage < T_STAGES; stage++) {
        K_UNROLL for (int32_t r = 0; r < KEYS; r += T_COPIED) {
            k_copy_begin(side->to[r / T_COPIED % 2] + stage * T_STAGE + r * G_LINE, side->from, 0);
        }
    }
}

K_FN void t_copy(const t_place *at, int32_t values) {
    const t_side side = t_side_of(at, values);
    const uint32_t shares = t_shares(at->args);
    uint32_t count = 0; /* of stages */
    if (side.d >= side.size && side.d < HEAD) {
        t_clear(&side);
    }
    K_ONE_COPY for (uint32_t i = blockIdx.x; i < shares; i += gridDim.x) {
        const t_share share = t_share_at(at->args, i);
        K_ONE_COPY for (int32_t step = 0; step < share.steps; step++) {
            K_ONE_COPY for (int32_t j = 0; j < share.streams; j++) {
                const uint32_t unit = share.unit + (uint32_t)j;
                const int32_t stage = (int32_t)(count % T_STAGES);
                k_gate_wait(at->empty + stage, count / T_STAGES - 1);
                if (side.d < side.size) {
                    t_fill(at, &side, unit, step * KEYS, t_length(at->args, unit), stage);
                }
                k_gate_pass_with_copies(at->full + stage);
                count++;
            }
        }
    }
    k_copies_group();
    K_COPIES_WAIT(0); /* a warp does not end before its copies */
}

/* ---- the groups that multiply ---- */

/* A group's tile of a share. */
typedef struct t_tile {
    mma_block at;
    int32_t is; /* otherwise it has no keys, and the group lets all stages pass */
    int32_t stream;
} t_tile;

K_FN t_tile t_tile_of(const mp_attention_args *args, const t_share *share, int32_t group) {
    const uint32_t own = share->first + (uint32_t)group;
    const uint32_t there = own <= share->last ? own : share->last;
    t_tile tile;
    tile.at = t_block_at(args, there);
    tile.is = own <= share->last;
    tile.at.to = tile.is ? tile.at.to : 0;
    tile.stream = (int32_t)(k_divide(there, args->by_row_blocks) - share->unit);
    return tile;
}

/* Which of the tile's rows is the lane's row `r` of two. */
K_FN int32_t t_row(int32_t r) {
    const int32_t lane = (int32_t)threadIdx.x % G_GROUP;
    return lane / LANES * ROWS + lane % LANES / 4 + r * SIDE;
}

/* The warp's rows as left operands, and the keys that the lane's two see. */
K_FN void t_ask(const mp_attention_args *args, const mma_block *at, uint32_t (*kept)[4],
                mma_row *row) {
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const mma_line line = mma_line_at(args, at, t_row(r));
        const T *const from = (const T *)args->q + at->entry * args->q_stride[0] +
                              line.head * args->q_stride[1] + line.query * args->q_stride[2] +
                              threadIdx.x % 4 * 2;
        row[r].mask_row = 0;
        row[r].from = 0;
        row[r].to = (int32_t)a_visible(&args->rule, at->length, line.query).to;
        K_UNROLL for (int32_t d = 0; d < HEAD / SIDE; d++) {
            uint32_t *const word = &kept[d / 2][d % 2 * 2 + r];
            *word = 0;
            if (d * SIDE < args->head_size) {
                *word = *(const uint32_t *)(const void *)(from + d * SIDE);
            }
        }
    }
}

K_FN void t_store(const mp_attention_args *args, const t_tile *tile, mma_state *state) {
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const mma_line line = mma_line_at(args, &tile->at, t_row(r));
        T *const to = (T *)args->out + tile->at.entry * args->out_stride[0] +
                      line.head * args->out_stride[1] + line.query * args->out_stride[2];
        float total = state->total[r];
        total += __shfl_xor_sync(MMA_ALL, total, 1);
        total += __shfl_xor_sync(MMA_ALL, total, 2);
        const float norm =
            mma_norm(a_sink(&args->rule, line.head), state->top[r] * (1 / MMA_LOG2_E), total);
        if (tile->is && t_row(r) < tile->at.row_count) {
            mma_write(to, args->v_head_size, state, r, norm);
        }
    }
}

/* Waits for stage number `count` and makes it visible to products. */
K_FN void t_await(const t_place *at, uint32_t count) {
    k_gate_wait(at->full + count % T_STAGES, count / T_STAGES);
    k_group_copies_seen();
}

/* The warp has done with it. */
K_FN void t_release(const t_place *at, uint32_t count) {
    __syncwarp();
    if (threadIdx.x % LANES == 0) {
        k_gate_pass(at->empty + count % T_STAGES);
    }
}

/* Stages of streams that are not the group's. */
K_FN uint32_t t_let_pass(const t_place *at, uint32_t count, int32_t streams) {
    K_ONE_COPY for (int32_t j = 0; j < streams; j++) {
        k_gate_wait(at->full + count % T_STAGES, count / T_STAGES);
        t_release(at, count);
        count++;
    }
    return count;
}

/* The group's turn to ask for products, and the next one's. */
K_FN void t_turn(int32_t group) {
    k_place_wait(T_TURN + group, 2 * G_GROUP);
}
K_FN void t_turn_on(int32_t group) {
    k_place_pass(T_TURN + (group + 1 < T_GROUPS ? group + 1 : 0), 2 * G_GROUP);
}

K_FN uint32_t t_values(const t_place *at, uint32_t count) {
    return at->place + count % T_STAGES * T_STAGE + G_TILE;
}

K_FN void t_attend(const t_place *at, int32_t group) {
    const mp_attention_args *args = at->args;
    const float factor = MMA_LOG2_E * (float)args->rule.scale;
    const uint32_t shares = t_shares(args);
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    uint32_t kept[HEAD / DEPTH][4], weights[KEYS / STEP][4];
    uint32_t count = 0; /* of stages */
    mma_row row[2];
    t_share share = t_share_at(args, blockIdx.x);
    t_tile tile = t_tile_of(args, &share, group);
    t_ask(args, &tile.at, kept, row);
    if (group == T_GROUPS - 1) {
        t_turn_on(group); /* the first turn is the first group's */
    }
    K_ONE_COPY for (uint32_t i = blockIdx.x; i < shares; i += gridDim.x) {
        mma_state state;
        int32_t is_before = 0; /* whether the step before left weights, of stage `before` */
        uint32_t before = 0;
        const int32_t least = row[0].to < row[1].to ? row[0].to : row[1].to;
        const int32_t all_to = __reduce_min_sync(MMA_ALL, least);
        mma_clear(&state);
        state.top[0] = state.top[1] = LOWEST;
        K_ONE_COPY for (int32_t step = 0; step < share.steps; step++) {
            const int32_t done = step * KEYS;
            count = t_let_pass(at, count, tile.stream);
            t_await(at, count);
            t_turn(group);
            if (done < tile.at.to) {
                float score[KEY_SIDES][4], shrink[2];
                g_scores(kept, t_values(at, count) - G_TILE, score);
                k_group_batch();
                if (is_before) {
                    g_values(weights, t_values(at, before), &state);
                    k_group_batch();
                    t_turn_on(group);
                    k_group_wait_but_one();
                } else {
                    t_turn_on(group);
                    k_group_wait();
                }
                if (done + KEYS > all_to) {
                    mma_hide(row, done + lane % 4 * 2, score);
                }
                const int32_t rises = g_weights(factor, score, &state, shrink);
                k_group_hold(__float_as_uint(state.total[0] + state.total[1]));
                k_group_wait();
                if (is_before) {
                    t_release(at, before);
                }
                if (rises) {
                    g_shrink(shrink, &state);
                }
                g_pack(score, weights);
                is_before = 1;
                before = count;
            } else { /* another group has more keys */
                t_turn_on(group);
                if (is_before) {
                    g_values(weights, t_values(at, before), &state);
                    k_group_end();
                    t_release(at, before);
                    is_before = 0;
                }
                t_release(at, count);
            }
            count = t_let_pass(at, count + 1, share.streams - tile.stream - 1);
        }
        const t_tile last = tile;
        if (i + gridDim.x < shares) { /* what comes next is on its way while this ends */
            share = t_share_at(args, i + gridDim.x);
            tile = t_tile_of(args, &share, group);
            t_ask(args, &tile.at, kept, row);
        }
        if (is_before) {
            g_values(weights, t_values(at, before), &state);
            k_group_end();
            t_release(at, before);
        }
        t_store(args, &last, &state);
    }
    if (group == 0) {
        t_turn(group); /* nobody leaves while another one still comes to a place */
    }
}

#endif

K_BLOCK_KERNEL_LATE_OF(K_TURNS_LANES(K_HEAD), 1, mp_attention_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    const uint32_t begin = (uint32_t)__cvta_generic_to_shared(shared);
    const int32_t group = k_group_number();
    t_place at;
    at.args = &args;
    at.ring = shared + (-begin & (K_GROUP_ALIGN - 1));
    at.place = __shfl_sync(MMA_ALL, (uint32_t)__cvta_generic_to_shared(at.ring), 0);
    at.full = (uint64_t *)(void *)(at.ring + T_STAGES * T_STAGE);
    at.empty = at.full + T_STAGES;
    if (threadIdx.x < T_STAGES) {
        k_gate_prepare(at.full + threadIdx.x, T_COPIERS);
        k_gate_prepare(at.empty + threadIdx.x, T_GROUPS * G_GROUP / LANES);
    }
    __syncthreads();
    k_wait();
    if (group == T_GROUPS) {
        if (T_LENDS) {
            K_GROUP_LEAVE(32);
        }
        if (threadIdx.x % G_GROUP < T_COPIERS) {
            t_copy(&at, (int32_t)threadIdx.x / LANES % 2);
        }
    } else {
        if (T_LENDS) {
            K_GROUP_TAKE(112);
        }
        t_attend(&at, group);
    }
#else
    (void)args;
#endif
}
