/* attention_mma.cu - attention for many queries by tensor cores, for types of two bytes and heads
 * of up to K_HEAD elements, a multiple of 16. A warp has 16 rows: it multiplies them with tiles of
 * keys, keeps the scores in registers, where they become the weights that the next product reads,
 * and has a running maximum and sum of each row. Heads that share a key head are rows of one block.
 *
 *     q          [tile_rows][PITCH]
 *     k, v       [tile_keys][PITCH] each, and once more where there are several tiles: one is
 *                filled while the other is worked on
 *
 * A block has tile_rows / 16 warps side by side, and as many such sets as tile_keys has KEYS, which
 * take neighbouring keys of a tile and add up what they found at the end. PITCH is an odd number of
 * 16 bytes, so that eight rows lie in different banks. The products are exact to float; the weights
 * are rounded to T before the second one.
 *
 * Where there is no such unit (the emulated device, GPUs before 8.0) a lane takes rows by plain
 * loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/core/warp_matrix.h"

enum {
    HEAD = K_HEAD,
    KEYS = K_MMA_KEYS(K_HEAD), /* that a warp takes at a time */
    PITCH = HEAD + A_PIECE
};

/* Rows of a key head, and the keys that any of them sees. */
typedef struct mma_block {
    int64_t entry, kv_head, length;
    int32_t row_first, row_count;
    int32_t from, to;
} mma_block;

/* One of the rows. */
typedef struct mma_row {
    int64_t mask_row;
    int32_t from, to; /* keys that it sees */
} mma_row;

typedef struct mma_line {
    int64_t head, query;
} mma_line;

/* Block `i`. Later rows see more keys where attention is causal: those come first. */
K_FN mma_block mma_place(const mp_attention_args *args, uint32_t i) {
    const k_score_rule *rule = &args->rule;
    const uint32_t rows = (uint32_t)(rule->group * rule->rows), each = (uint32_t)args->tile_rows;
    const uint32_t units = (uint32_t)(rule->batch * rule->kv_heads);
    const uint32_t row_tiles = (rows + each - 1) / each;
    const uint32_t unit = rule->causal ? i % units : i / row_tiles;
    const uint32_t tile = rule->causal ? row_tiles - 1 - i / units : i % row_tiles;
    const uint32_t first = tile * each, last = first + each < rows ? first + each - 1 : rows - 1;
    const uint32_t one = (uint32_t)rule->rows;
    const int32_t one_head = first / one == last / one;
    mma_block at;
    at.entry = unit / (uint32_t)rule->kv_heads;
    at.kv_head = unit % (uint32_t)rule->kv_heads;
    at.length = a_length(rule, at.entry);
    at.row_first = (int32_t)first;
    at.row_count = (int32_t)(last - first + 1);
    const a_span span = a_visible(rule, at.length, one_head ? first % one : 0);
    at.from = (int32_t)span.from;
    at.to = (int32_t)a_visible(rule, at.length, one_head ? last % one : one - 1).to;
    return at;
}

/* What row `r` is; rows beyond the last are that one. */
K_FN mma_line mma_line_at(const k_score_rule *rule, const mma_block *at, int32_t r) {
    const int32_t there = r < at->row_count ? r : at->row_count - 1;
    const uint32_t row = (uint32_t)(at->row_first + there), inner = row / (uint32_t)rule->rows;
    mma_line line;
    line.head = at->kv_head * rule->group + inner;
    line.query = row - inner * (uint32_t)rule->rows;
    return line;
}

K_FN mma_row mma_row_at(const k_score_rule *rule, const mma_block *at, int32_t r) {
    const mma_line line = mma_line_at(rule, at, r);
    const a_span span = a_visible(rule, at->length, line.query);
    mma_row row;
    row.mask_row = a_mask_row(rule, at->entry, line.head, line.query);
    row.from = (int32_t)span.from;
    row.to = (int32_t)span.to;
    return row;
}

/* What the sums of a row are multiplied by at its end. */
K_FN float mma_norm(const k_score_rule *rule, int64_t head, float top, float total) {
    const float sink = a_sink(rule, head);
    const float above = sink > top ? sink : top;
    const float share = total == 0 ? 0 : expf(top - above);
    return share * a_norm(above, total * share, sink);
}

#if K_WARP_MATRIX

#define mma_product K_JOIN(k_mma_, K_T0)
#define mma_pair    K_JOIN(k_pair_, K_T0)

enum {
    ROWS = K_MMA_ROWS,
    SIDE = 8, /* keys or elements that a product gives */
    STEP = 16,
    PIECES = HEAD / A_PIECE,
    KEY_SIDES = KEYS / SIDE,
    HEAD_SIDES = HEAD / SIDE,
    KEEP_Q = HEAD <= 128, /* otherwise there are no registers for it */
    LANES = 32
};
static_assert(HEAD % STEP == 0 && KEYS % STEP == 0, "sizes are multiples of a step");

#define MMA_LOG2_E 1.44269504F
#define MMA_ALL    0xffffffffu

/* What a lane has of its rows g and g + 8. */
typedef struct mma_state {
    float out[HEAD_SIDES][4];
    float top[2], total[2];
} mma_state;

/* Which piece of a row a lane copies, of which rows: all lanes of `rows` rows at a time, the others
 * have none. */
typedef struct mma_share {
    int32_t row, rows, d;
} mma_share;

K_FN mma_share mma_shared_out(void) {
    mma_share share;
    share.rows = (int32_t)blockDim.x / PIECES;
    share.row = (int32_t)threadIdx.x / PIECES;
    share.d = (int32_t)threadIdx.x % PIECES * A_PIECE;
    return share;
}

/* Rows from `first` of K or V into shared memory, 0 from `end` on. */
K_FN void mma_copy_keys(T *to, const T *from, int64_t stride, int32_t size, int32_t first,
                        int32_t count, int32_t end) {
    const mma_share share = mma_shared_out();
    const T *source = from + (int64_t)(first + share.row) * stride + share.d;
    if (share.row >= share.rows) {
        return;
    }
    K_ONE_COPY for (int32_t r = share.row; r < count; r += share.rows) {
        const int32_t there = first + r < end && share.d < size;
        k_copy_begin(to + r * PITCH + share.d, there ? source : from, there ? 16 : 0);
        source += share.rows * stride;
    }
}

K_FN void mma_copy_queries(const mp_attention_args *args, const mma_block *at, T *to) {
    const mma_share share = mma_shared_out();
    const T *q = (const T *)args->q + at->entry * args->q_stride[0];
    if (share.row >= share.rows) {
        return;
    }
    K_ONE_COPY for (int32_t r = share.row; r < args->tile_rows; r += share.rows) {
        const mma_line line = mma_line_at(&args->rule, at, r);
        const int64_t place = line.head * args->q_stride[1] + line.query * args->q_stride[2];
        const int32_t there = share.d < args->head_size;
        k_copy_begin(to + r * PITCH + share.d, q + place + (there ? share.d : 0), there ? 16 : 0);
    }
}

/* The 16 rows of a warp, elements from `d`. */
K_FN void mma_query(const T *q, int32_t d, uint32_t *out) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    k_matrices_load(out, q + lane % STEP * PITCH + d + lane / STEP * SIDE);
}

K_FN void mma_scores(const T *q, uint32_t (*kept)[4], const T *k, float (*score)[4]) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const T *from = k + (lane % SIDE + lane / STEP * SIDE) * PITCH + lane / SIDE % 2 * SIDE;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = 0;
        }
    }
    K_UNROLL for (int32_t d = 0; d < HEAD; d += STEP) {
        uint32_t a[4];
        if (KEEP_Q) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                a[e] = kept[d / STEP][e];
            }
        } else {
            mma_query(q, d, a);
        }
        K_UNROLL for (int32_t n = 0; n < KEYS; n += STEP) {
            uint32_t b[4];
            k_matrices_load(b, from + n * PITCH + d);
            mma_product(score[n / SIDE], a, b);
            mma_product(score[n / SIDE + 1], a, b + 2);
        }
    }
}

K_FN void mma_values(const T *v, float (*weight)[4], mma_state *state) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const T *from = v + lane % STEP * PITCH + lane / STEP * SIDE;
    K_UNROLL for (int32_t n = 0; n < KEYS; n += STEP) {
        const float *left = weight[n / SIDE], *right = weight[n / SIDE + 1];
        const uint32_t a[4] = {mma_pair(left[0], left[1]), mma_pair(left[2], left[3]),
                               mma_pair(right[0], right[1]), mma_pair(right[2], right[3])};
        K_UNROLL for (int32_t d = 0; d < HEAD; d += STEP) {
            uint32_t b[4];
            k_matrices_load_turned(b, from + n * PITCH + d);
            mma_product(state->out[d / SIDE], a, b);
            mma_product(state->out[d / SIDE + 1], a, b + 2);
        }
    }
}

/* ---- masks ---- */

K_FN int32_t mma_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* What a rule asks for: early is what is loaded before the product of a tile. */
typedef struct mma_asks {
    int32_t last; /* key that there is a mask for; a row that sees any sees none beyond it */
    int32_t mask_early, padding, padding_early;
    int32_t seldom;
} mma_asks;

K_FN mma_asks mma_asked(const k_score_rule *rule) {
    mma_asks asks;
    asks.last = (int32_t)(rule->keys < rule->mask_keys ? rule->keys : rule->mask_keys) - 1;
    asks.mask_early = rule->mask_stride[3] == 1 &&
                      (rule->mask_kind == K_MASK_BOOL || rule->mask_kind == K_MASK_F16 ||
                       rule->mask_kind == K_MASK_BF16);
    asks.padding = rule->padding_kind != K_PADDING_NONE;
    asks.padding_early = asks.padding && rule->padding_stride[1] == 0;
    asks.seldom = rule->softcap > 0 || (rule->mask_kind != K_MASK_NONE && !asks.mask_early) ||
                  (asks.padding && !asks.padding_early);
    return asks;
}

/* Masks of a row, of one or two bytes, for a lane's keys `key` and the next one, and so on in steps
 * of SIDE: the first in the low half of a word. They are asked for before the product, which takes
 * as long as they do. */
K_FN void mma_mask_load(const k_score_rule *rule, int64_t mask_row, int32_t key, int32_t last,
                        uint32_t (*out)[2], int32_t r) {
    const int32_t left = last - key; /* to the last one */
    if (rule->mask_kind == K_MASK_BOOL) {
        const uint8_t *from = (const uint8_t *)rule->mask + mask_row + key;
        if ((uint64_t)from % 2 == 0 && left > KEYS - SIDE) {
            K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
                const uint32_t both = *(const uint16_t *)(const void *)(from + n);
                out[n / SIDE][r] = (both & 0xffu) | both >> 8 << 16;
            }
            return;
        }
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            const uint32_t low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
            out[n / SIDE][r] = low | high << 16;
        }
        return;
    }
    const uint16_t *from = (const uint16_t *)rule->mask + mask_row + key;
    if ((uint64_t)from % 4 == 0 && left > KEYS - SIDE) {
        K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
            out[n / SIDE][r] = *(const uint32_t *)(const void *)(from + n);
        }
        return;
    }
    K_UNROLL for (int32_t n = 0; n < KEYS; n += SIDE) {
        const uint32_t low = n <= left ? from[n] : 0, high = n < left ? from[n + 1] : 0;
        out[n / SIDE][r] = low | high << 16;
    }
}

/* What the rule says of a lane's keys beside its mask, from `key` on in steps of SIDE. */
typedef struct mma_marks {
    uint32_t mask[KEY_SIDES][2]; /* of one or two bytes */
    uint64_t padding;            /* a bit for each key of the warp */
} mma_marks;

/* Padding that is the same for all rows, a key of the warp a lane. */
K_FN uint64_t mma_padding_load(const k_score_rule *rule, const mma_block *at, int32_t key,
                               int32_t last) {
    const int64_t padding_row = a_padding_row(rule, at->entry, 0);
    uint64_t bits = 0;
    K_ONE_COPY for (int32_t i = 0; i < KEYS; i += LANES) {
        const int32_t place = mma_least(key + i + (int32_t)threadIdx.x % LANES, last);
        const float added = a_padded(rule, padding_row, at->entry, place, 0.0F);
        bits |= (uint64_t)__ballot_sync(MMA_ALL, added != 0) << i;
    }
    return bits;
}

K_FN void mma_padding(const k_score_rule *rule, uint64_t padding, float (*score)[4]) {
    const uint64_t mine = padding >> (int32_t)threadIdx.x % 4 * 2;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] += mine >> (n * SIDE + e % 2) & 1 ? rule->filter : 0;
        }
    }
}

/* `kind` is a constant where this is called. */
K_FN void mma_mask(int32_t kind, const uint32_t (*mask)[2], float (*score)[4]) {
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            const uint32_t both = mask[n][e / 2], half = e % 2 ? both >> 16 : both & 0xffffu;
            if (kind == K_MASK_BOOL) {
                score[n][e] = half != 0 ? score[n][e] : A_NONE;
            } else if (kind == K_MASK_F16) {
                const k_f16 added = {(uint16_t)half};
                score[n][e] += k_load_f16(added);
            } else {
                score[n][e] += k_float_of_bits(half << 16);
            }
        }
    }
}

/* All that is seldom asked for, by one text for all scores, which take turns in the first place. */
K_FN void mma_seldom(const k_score_rule *rule, const mma_block *at, const mma_row *row,
                     int32_t first_row, int32_t key, const mma_asks *asks, float (*score)[4]) {
    int64_t padding_row[2];
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        const mma_line line = mma_line_at(rule, at, first_row + r * SIDE);
        padding_row[r] = a_padding_row(rule, at->entry, line.query);
    }
    K_ONE_COPY for (int32_t n = 0; n < KEY_SIDES; n++) {
        float first[4];
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            const int32_t place = mma_least(key + n * SIDE + e % 2, asks->last);
            first[e] = a_capped(rule, score[0][e]);
            if (!asks->mask_early) {
                first[e] = a_masked(rule, row[e / 2].mask_row, place, first[e]);
            }
            if (asks->padding && !asks->padding_early) {
                first[e] = a_padded(rule, padding_row[e / 2], at->entry, place, first[e]);
            }
        }
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            K_UNROLL for (int32_t i = 0; i + 1 < KEY_SIDES; i++) {
                score[i][e] = score[i + 1][e];
            }
            score[KEY_SIDES - 1][e] = first[e];
        }
    }
}

/* Products become scores: scale, cap, mask, padding, and nothing for keys that a row does not
 * see. */
K_FN void mma_rule(const k_score_rule *rule, const mma_block *at, const mma_row *row,
                   int32_t first_row, int32_t key, const mma_asks *asks, int32_t all_seen,
                   const mma_marks *marks, float (*score)[4]) {
    if (asks->seldom) {
        mma_seldom(rule, at, row, first_row, key, asks, score);
    } else {
        const float scale = (float)rule->scale;
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                score[n][e] *= scale;
            }
        }
    }
    const int32_t kind = asks->mask_early ? rule->mask_kind : K_MASK_NONE;
    if (kind == K_MASK_BOOL) {
        mma_mask(K_MASK_BOOL, marks->mask, score);
    } else if (kind == K_MASK_F16) {
        mma_mask(K_MASK_F16, marks->mask, score);
    } else if (kind == K_MASK_BF16) {
        mma_mask(K_MASK_BF16, marks->mask, score);
    }
    if (asks->padding_early) {
        mma_padding(rule, marks->padding, score);
    }
    if (!all_seen) {
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                const int32_t place = key + n * SIDE + e % 2;
                const int32_t seen = place >= row[e / 2].from && place < row[e / 2].to;
                score[n][e] = seen ? score[n][e] : A_NONE;
            }
        }
    }
}

/* ---- softmax ---- */

/* e to the power of what a score is above `base`. */
K_FN float mma_power(float score, float base) {
    return k_exp2((score - base) * MMA_LOG2_E);
}

/* What scores are compared with: their maximum, or 0 where all are left out. */
K_FN float mma_base(float top) {
    return top == A_NONE ? 0 : top;
}

/* Scores become weights, each by one step and a power of two. So near to the largest number that
 * there is (a mask's lowest one in bfloat16) that step would go beyond it; there two scores are the
 * same or worlds apart, whatever the factor. A NaN is passed over for the maximum and stays in the
 * sum. */
K_FN void mma_weights(float (*score)[4], mma_state *state) {
    float shrink[2];
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        float top = state->top[r];
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            top = fmaxf(top, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(MMA_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(MMA_ALL, top, 2));
        const float base = mma_base(top), factor = fabsf(base) < 1e38F ? MMA_LOG2_E : 0x1p-64F;
        const float down = -base * factor;
        float sum = 0;
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            K_UNROLL for (int32_t e = 2 * r; e < 2 * r + 2; e++) {
                score[n][e] = k_exp2(fmaf(score[n][e], factor, down));
                sum += score[n][e];
            }
        }
        shrink[r] = mma_power(state->top[r], base);
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

/* ---- the end ---- */

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
        mine[r] = mma_power(state->top[r], base);
        other[r] = mma_power(top, base);
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

K_FN void mma_store(const mp_attention_args *args, const mma_block *at, int32_t first,
                    const mma_state *state) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    K_UNROLL for (int32_t r = 0; r < 2; r++) {
        if (first + r * SIDE >= at->row_count) {
            continue;
        }
        const mma_line line = mma_line_at(&args->rule, at, first + r * SIDE);
        const float norm = mma_norm(&args->rule, line.head, state->top[r], state->total[r]);
        T *to = (T *)args->out + at->entry * args->out_stride[0] + line.head * args->out_stride[1] +
                line.query * args->out_stride[2];
        K_UNROLL for (int32_t n = 0; n < HEAD_SIDES; n++) {
            const int32_t d = n * SIDE + lane % 4 * 2;
            if (d < args->v_head_size) {
                *(uint32_t *)(void *)(to + d) =
                    mma_pair(state->out[n][2 * r] * norm, state->out[n][2 * r + 1] * norm);
            }
        }
    }
}

/* Tile `i` of K and V, a group of copies each; groups of nothing where there is none. */
K_FN void mma_fill(const mp_attention_args *args, const mma_block *at, const T *k, const T *v,
                   int32_t i, int32_t tiles, T *shared) {
    const int32_t count = args->tile_keys, first = at->from + i * count;
    T *to = shared + (args->tile_rows + i % 2 * 2 * count) * PITCH;
    if (i < tiles) {
        mma_copy_keys(to, k, args->k_stride[2], args->head_size, first, count, at->to);
    }
    k_copies_group();
    if (i < tiles) {
        mma_copy_keys(to + count * PITCH, v, args->v_stride[2], args->v_head_size, first, count,
                      at->to);
    }
    k_copies_group();
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

K_FN void mma_run(const mp_attention_args *args, const mma_block *at, T *shared) {
    const k_score_rule *rule = &args->rule;
    const int32_t lane = (int32_t)threadIdx.x % LANES, warp = (int32_t)threadIdx.x / LANES;
    const int32_t row_warps = args->tile_rows / ROWS, count = args->tile_keys;
    const int32_t row_warp = warp % row_warps, set = warp / row_warps;
    const int32_t first = row_warp * ROWS + lane / 4; /* of the lane's two rows */
    const int32_t tiles = at->to > at->from ? (at->to - at->from + count - 1) / count : 0;
    const mma_asks asks = mma_asked(rule);
    const T *k =
        (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1];
    const T *v =
        (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1];
    const T *q = shared + row_warp * ROWS * PITCH;
    mma_copy_queries(args, at, shared);
    mma_fill(args, at, k, v, 0, tiles, shared);
    mma_fill(args, at, k, v, 1, tiles, shared);
    const mma_row row[2] = {mma_row_at(rule, at, first), mma_row_at(rule, at, first + SIDE)};
    uint32_t kept[HEAD / STEP][4];
    mma_state state;
    mma_clear(&state);
    K_ONE_COPY for (int32_t i = 0; i < tiles; i++) {
        const T *tile = shared + (args->tile_rows + i % 2 * 2 * count + set * KEYS) * PITCH;
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
            K_UNROLL for (int32_t d = 0; d < HEAD; d += STEP) {
                mma_query(q, d, kept[d / STEP]);
            }
        }
        if (i > 0) {
            mma_fill(args, at, k, v, i + 1, tiles, shared);
        }
        if (seen) {
            mma_scores(q, kept, tile, score);
            mma_rule(rule, at, row, first, mine, &asks, seen == 2, &marks, score);
            mma_weights(score, &state);
        }
        if (i == 0) {
            K_COPIES_WAIT(2);
            __syncthreads();
        }
        if (seen) {
            mma_values(tile + count * PITCH, score, &state);
        }
    }
    K_COPIES_WAIT(0);
    mma_meet(row_warps, row_warp, set, count / KEYS,
             (float *)(void *)(shared + args->tile_rows * PITCH), &state);
    if (set == 0) {
        mma_store(args, at, first, &state);
    }
    __syncthreads(); /* shared memory is free for the next block */
}

#else

enum { TOGETHER = 8 /* rows that a lane takes at a time, so that keys are read once for them */ };

typedef struct mma_plain {
    mma_row row;
    mma_line line;
    float query[HEAD], sum[HEAD];
    float top, total;
} mma_plain;

K_FN void mma_read(const T *from, int32_t size, float *out) {
    K_ONE_COPY for (int32_t d = 0; d < size; d += A_PIECE) {
        a_load(from, d, size, 1, out + d);
    }
}

K_FN void mma_begin(const mp_attention_args *args, const mma_block *at, int32_t r, mma_plain *x) {
    x->row = mma_row_at(&args->rule, at, r);
    x->line = mma_line_at(&args->rule, at, r);
    x->top = A_NONE;
    x->total = 0;
    mma_read((const T *)args->q + at->entry * args->q_stride[0] + x->line.head * args->q_stride[1] +
                 x->line.query * args->q_stride[2],
             args->head_size, x->query);
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        x->sum[d] = 0;
    }
}

K_FN void mma_add(const mp_attention_args *args, const mma_block *at, int64_t key, const float *k,
                  const float *v, mma_plain *x) {
    const k_score_rule *rule = &args->rule;
    float dot = 0;
    K_ONE_COPY for (int32_t d = 0; d < args->head_size; d++) {
        dot += x->query[d] * k[d];
    }
    const float masked = a_masked(rule, x->row.mask_row, key, a_capped(rule, dot));
    const int64_t padding_row = a_padding_row(rule, at->entry, x->line.query);
    const float score = a_padded(rule, padding_row, at->entry, key, masked);
    const float top = score > x->top ? score : x->top;
    const float shrink = x->total == 0 ? 0 : expf(x->top - top), weight = a_weight(score, top);
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        x->sum[d] = x->sum[d] * shrink + weight * v[d];
    }
    x->total = x->total * shrink + weight;
    x->top = top;
}

K_FN void mma_end(const mp_attention_args *args, const mma_block *at, const mma_plain *x) {
    const float norm = mma_norm(&args->rule, x->line.head, x->top, x->total);
    T *to = (T *)args->out + at->entry * args->out_stride[0] + x->line.head * args->out_stride[1] +
            x->line.query * args->out_stride[2];
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        to[d] = T_store(x->sum[d] * norm);
    }
}

K_FN void mma_run(const mp_attention_args *args, const mma_block *at, T *shared) {
    const T *k =
        (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1];
    const T *v =
        (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1];
    mma_plain rows[TOGETHER];
    float key_row[HEAD], value_row[HEAD];
    (void)shared;
    K_BLOCK_LOOP(i, (at->row_count + TOGETHER - 1) / TOGETHER) {
        const int32_t first = (int32_t)i * TOGETHER, left = at->row_count - first;
        const int32_t count = left < TOGETHER ? left : TOGETHER;
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_begin(args, at, first + r, &rows[r]);
        }
        K_ONE_COPY for (int32_t key = at->from; key < at->to; key++) {
            mma_read(k + key * args->k_stride[2], args->head_size, key_row);
            mma_read(v + key * args->v_stride[2], args->v_head_size, value_row);
            K_ONE_COPY for (int32_t r = 0; r < count; r++) {
                if (key >= rows[r].row.from && key < rows[r].row.to) {
                    mma_add(args, at, key, key_row, value_row, &rows[r]);
                }
            }
        }
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_end(args, at, &rows[r]);
        }
    }
}

#endif

/* Twelve warps on a multiprocessor, or eight where heads are long. */
#define MMA_REGISTERS (K_HEAD <= 64 ? 168 : 255)

K_BLOCK_KERNEL_WITHIN(MMA_REGISTERS, 256, mp_attention_args, args) {
    K_SHARED(T, shared);
    const k_score_rule *rule = &args.rule;
    const int64_t row_tiles = (rule->group * rule->rows + args.tile_rows - 1) / args.tile_rows;
    for (int64_t i = blockIdx.x; i < rule->batch * rule->kv_heads * row_tiles; i += gridDim.x) {
        const mma_block at = mma_place(&args, (uint32_t)i);
        mma_run(&args, &at, shared);
    }
}
