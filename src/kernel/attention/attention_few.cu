/* attention_few.cu - attention for up to K_ROWS queries at a time, above all one new token: bound
 * by reading keys and values once. A few lanes share a key and hold eight elements of the head
 * each; groups of lanes take keys in turn, each with a maximum and sums of its own, which meet in
 * shared memory at the end. The queries of all heads that share a key head are one block's, and
 * long caches are split over blocks, whose sums attention_combine.cu adds up.
 *
 * On the emulated device a group is one lane that holds the whole head.
 *
 * With K_WIDE rows are read by 16 bytes. Such a kernel takes a few microseconds, most of which it
 * would fetch its own text if that were long: there is one place for each load, and what needs a
 * division is found once.
 *
 * With K_CACHE keys and values come from a quantised cache. A scale is the same for all keys, so Q
 * is multiplied by those of keys once, and the sums by those of values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/attention/beams.h"
#include "kernel/core/lanes_sum.h"
#if K_CACHE
#include "kernel/pointwise/narrow_value.h"
#endif

#if K_HOST
enum { SLICE = K_ATTENTION_HEAD_MAX };
#else
enum { SLICE = K_ATTENTION_SLICE };
#endif
enum { ROWS = K_ROWS, AHEAD = K_ATTENTION_AHEAD(K_ROWS) };

/* Where a block works, and what it knows of its rows; those that are not there are the first. */
typedef struct few {
    int64_t entry, kv_head, row_first, split;
    int32_t rows;
    int32_t head[ROWS], row[ROWS];
    int64_t from, to; /* keys */
    int64_t length;
} few;

/* What a group has of its rows. */
typedef struct few_state {
    float q[ROWS][SLICE], sum[ROWS][SLICE];
    float top[ROWS], total[ROWS];
} few_state;

/* One new token for each head needs no division. */
K_FN void few_find_row(const k_score_rule *rule, const few *at, int32_t r, int32_t *head,
                       int32_t *row) {
    const int64_t n = at->row_first + r;
    const int64_t in_group = rule->rows == 1 ? n : a_divide(n, rule->rows);
    *head = (int32_t)(at->kv_head * rule->group + in_group);
    *row = (int32_t)(n - in_group * rule->rows);
}

K_FN few few_place(const mp_attention_args *args, int64_t unit) {
    const k_score_rule *rule = &args->rule;
    const int64_t rows = rule->group * rule->rows;
    const int64_t row_blocks = a_divide(rows + ROWS - 1, ROWS);
    const int64_t row_unit = a_divide(unit, args->splits);
    const int64_t head_unit = a_divide(row_unit, row_blocks);
    few at;
    at.split = unit - row_unit * args->splits;
    at.row_first = (row_unit - head_unit * row_blocks) * ROWS;
    at.rows = (int32_t)(rows - at.row_first < ROWS ? rows - at.row_first : ROWS);
    at.entry = a_divide(head_unit, rule->kv_heads);
    at.kv_head = head_unit - at.entry * rule->kv_heads;
    at.length = a_length(rule, at.entry);
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        few_find_row(rule, &at, r < at.rows ? r : 0, &at.head[r], &at.row[r]);
    }
    const int64_t first = at.split * args->split_keys, end = first + args->split_keys;
    const int64_t from = a_visible(rule, at.length, 0).from;
    const int64_t to = a_visible(rule, at.length, rule->rows - 1).to;
    at.from = first > from ? first : from;
    at.to = end < to ? end : to;
    return at;
}

/* ---- a slice of a key or a value ---- */

#if K_CACHE

typedef uint8_t few_kv;

typedef struct few_slice {
    float value[SLICE];
} few_slice;

K_FN void few_take(const mp_attention_args *args, const few_kv *row, int32_t first, int32_t size,
                   few_slice *out) {
    const int32_t aligned = (uint64_t)row % 8 == 0;
    K_UNROLL for (int32_t e = 0; e < SLICE; e += K_GROUP) {
        const int32_t at = first + e;
        uint32_t bits[K_GROUP];
        if (at >= size) {
            if (e == 0) {
                K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
                    out->value[k] = 0;
                }
            }
            continue;
        }
        const int32_t count = n_group_size(at, size);
        n_group_load(row, args->cache.type.width, at, count, aligned, bits);
        K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
            const float value = n_from_bits(&args->cache.type, bits[k]);
            out->value[e + k] = k < count ? value - (float)args->cache.zero : 0;
        }
    }
}

K_FN void few_unpack(const few_slice *slice, int32_t size, float *out) {
    K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
        if (!K_HOST || e < size) {
            out[e] = slice->value[e];
        }
    }
}

K_FN void few_scale(const mp_attention_args *args, int32_t side, const few *at, int32_t first,
                    int32_t size, float *values) {
    const float *scale = (const float *)args->cache.scale[side];
    const int32_t channels = args->cache.channels[side];
    K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
        if (first + e < size) {
            values[e] *= scale[channels ? at->kv_head * size + first + e : 0];
        }
    }
}

#else

typedef T few_kv;

typedef struct few_slice {
    a_pack pack[SLICE / A_PIECE];
} few_slice;

K_FN void few_take(const mp_attention_args *args, const few_kv *row, int32_t first, int32_t size,
                   few_slice *out) {
    (void)args;
    K_UNROLL for (int32_t e = 0; e < SLICE; e += A_PIECE) {
        if (e == 0 || e < size) {
            a_take(row, first + e, size, K_WIDE, &out->pack[e / A_PIECE]);
        }
    }
}

K_FN void few_unpack(const few_slice *slice, int32_t size, float *out) {
    K_UNROLL for (int32_t e = 0; e < SLICE; e += A_PIECE) {
        if (e == 0 || e < size) {
            a_unpack(&slice->pack[e / A_PIECE], out + e);
        }
    }
}

K_FN void few_scale(const mp_attention_args *args, int32_t side, const few *at, int32_t first,
                    int32_t size, float *values) {
    (void)args, (void)side, (void)at, (void)first, (void)size, (void)values;
}

#endif

/* The same of a key, whose pieces of 16 bytes may lie apart. */
K_FN void few_take_key(const mp_attention_args *args, const few_kv *row, int32_t first,
                       few_slice *out) {
#if K_WIDE && !K_CACHE
    enum { PIECE = 16 / sizeof(T), PIECES = A_PIECE / PIECE };
    const k_b128 none = {0, 0};
    const T *from = row + first / PIECE * args->k_piece;
    K_UNROLL for (int32_t i = 0; i < SLICE / PIECE; i++) {
        if (i == 0 || !K_HOST || i * PIECE < args->head_size) {
            const k_b128 *piece = (const k_b128 *)(const void *)(from + i * args->k_piece);
            out->pack[i / PIECES].raw[i % PIECES] = first < args->head_size ? *piece : none;
        }
    }
#else
    few_take(args, row, first, args->head_size, out);
#endif
}

/* ---- a round: so many keys of a group ---- */

/* What is loaded for it, as it lies in memory: all loads are under way at once, and those of the
 * next round while this one is computed. */
typedef struct few_round {
    few_slice k[AHEAD], v[AHEAD];
    float bias[AHEAD][ROWS]; /* of masks and padding, added to scores */
} few_round;

#define FEW_BIAS(kind, type, load)                                                   \
    case kind:                                                                       \
        K_UNROLL for (int32_t i = 0; i < AHEAD * ROWS; i++) {                        \
            const int64_t place = first[i % ROWS] + key[i / ROWS];                   \
            out->bias[i / ROWS][i % ROWS] = load(((const type *)rule->mask)[place]); \
        }                                                                            \
        break;

K_FN float few_shown(k_bool mask) {
    return k_load_bool(mask) ? 0 : A_NONE;
}

K_FN void few_bias(const k_score_rule *rule, const few *at, const int64_t *keys, few_round *out) {
    int64_t key[AHEAD], first[ROWS];
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        key[n] = keys[n] * rule->mask_stride[3];
    }
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        first[r] = a_mask_row(rule, at->entry, at->head[r], at->row[r]);
    }
    switch (rule->mask_kind) {
        FEW_BIAS(K_MASK_BOOL, k_bool, few_shown)
        FEW_BIAS(K_MASK_F32, float, )
        FEW_BIAS(K_MASK_F64, double, (float))
        FEW_BIAS(K_MASK_F16, k_f16, k_load_f16)
        FEW_BIAS(K_MASK_BF16, k_bf16, k_load_bf16)
    default:
        K_UNROLL for (int32_t i = 0; i < AHEAD * ROWS; i++) {
            out->bias[i / ROWS][i % ROWS] = 0;
        }
        break;
    }
    if (rule->padding_kind != K_PADDING_NONE) {
        K_UNROLL for (int32_t i = 0; i < AHEAD * ROWS; i++) {
            const int32_t n = i / ROWS, r = i % ROWS;
            const int64_t flags = a_padding_row(rule, at->entry, at->row[r]);
            out->bias[n][r] = a_padded(rule, flags, at->entry, keys[n], out->bias[n][r]);
        }
    }
}

/* The keys from `base` on, of which each group has every `groups`th. Beyond the last one the first
 * is loaded, and left out later. */
K_FN void few_load(const mp_attention_args *args, const few *at, int64_t base, int32_t first,
                   int32_t groups, few_round *out) {
    const few_kv *k = (const few_kv *)args->k + at->kv_head * args->k_stride[1];
    const few_kv *v = (const few_kv *)args->v + at->kv_head * args->v_stride[1];
    int64_t key[AHEAD], entry[AHEAD];
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        const int64_t wanted = base + (int64_t)n * groups;
        key[n] = wanted < at->to ? wanted : at->from;
        entry[n] = b_entry(&args->beams, at->entry, key[n]);
    }
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        few_take_key(args, k + entry[n] * args->k_stride[0] + key[n] * args->k_stride[2], first,
                     &out->k[n]);
    }
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        few_take(args, v + entry[n] * args->v_stride[0] + key[n] * args->v_stride[2], first,
                 args->v_head_size, &out->v[n]);
    }
    few_bias(&args->rule, at, key, out);
}

/* The sum over the lanes of a group. */
K_LANES_SUM(few_meet, float)

/* The scores of row `r`. Returns which keys the row sees, a bit each; the others' scores are -inf.
 */
K_FN uint32_t few_scores(const mp_attention_args *args, const few *at, const few_state *state,
                         const few_round *round, int64_t base, int32_t groups, int32_t r,
                         float *score) {
    const k_score_rule *rule = &args->rule;
    const a_span span = a_visible(rule, at->length, at->row[r]);
    const int64_t from = span.from > at->from ? span.from : at->from;
    const int64_t to = span.to < at->to ? span.to : at->to;
    uint32_t seen = 0;
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        const int64_t key = base + (int64_t)n * groups;
        const float bias = round->bias[n][r];
        float element[SLICE];
        float dot = 0;
        few_unpack(&round->k[n], args->head_size, element);
        K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
            if (!K_HOST || e < args->head_size) {
                dot += state->q[r][e] * element[e];
            }
        }
        dot = few_meet(dot, args->group_lanes);
        const int32_t is_hidden = rule->mask_kind == K_MASK_BOOL && bias == A_NONE;
        score[n] = is_hidden ? A_NONE : a_capped(rule, dot) + bias;
        if (key >= from && key < to) {
            seen |= 1u << n;
        } else {
            score[n] = A_NONE;
        }
    }
    return seen;
}

/* Adds the round's keys to row `r`: the sums shrink once where a score is the highest so far. */
K_FN void few_add(const mp_attention_args *args, few_state *state, const few_round *round,
                  int32_t r, uint32_t seen, const float *score) {
    const float before = state->top[r];
    float top = before;
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        top = score[n] > top ? score[n] : top;
    }
    if (top > before) {
        const float shrink = state->total[r] == 0 ? 0 : expf(before - top);
        state->top[r] = top;
        state->total[r] *= shrink;
        K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
            if (!K_HOST || e < args->v_head_size) {
                state->sum[r][e] *= shrink;
            }
        }
    }
    K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
        if ((seen >> n & 1) != 0) {
            const float weight = a_weight(score[n], top);
            float element[SLICE];
            few_unpack(&round->v[n], args->v_head_size, element);
            state->total[r] += weight;
            K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
                if (!K_HOST || e < args->v_head_size) {
                    state->sum[r][e] += weight * element[e];
                }
            }
        }
    }
}

K_FN void few_start(const mp_attention_args *args, const few *at, int32_t first, few_state *state) {
    a_pack q[ROWS][SLICE / A_PIECE];
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        const T *from = (const T *)args->q + at->entry * args->q_stride[0] +
                        at->head[r] * args->q_stride[1] + at->row[r] * args->q_stride[2];
        K_UNROLL for (int32_t e = 0; e < SLICE; e += A_PIECE) {
            a_take(from, first + e, args->head_size, K_WIDE, &q[r][e / A_PIECE]);
        }
    }
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        state->top[r] = A_NONE;
        state->total[r] = 0;
        K_UNROLL for (int32_t e = 0; e < SLICE; e += A_PIECE) {
            a_unpack(&q[r][e / A_PIECE], &state->q[r][e]);
        }
        K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
            state->sum[r][e] = 0;
        }
        few_scale(args, 0, at, first, args->head_size, state->q[r]);
    }
}

/* The keys of one group: from `at->from` + its number in steps of `groups`. Every group makes the
 * same number of rounds, since lanes of several groups meet in few_meet. The first time round there
 * are only loads, which stand here once. */
K_FN void few_keys(const mp_attention_args *args, const few *at, int32_t first, int32_t group,
                   int32_t groups, few_state *state) {
    const int64_t step = (int64_t)groups * AHEAD;
    few_round next;
    K_ONE_COPY
    for (int64_t base = at->from - step; base < at->from || base < at->to; base += step) {
        const int32_t is_first = base < at->from; /* also where there is no key */
        few_round round;
        if (!is_first) {
            round = next;
        }
        if (base + step < at->to) {
            few_load(args, at, base + step + group, first, groups, &next);
        }
        if (is_first) {
            few_start(args, at, first, state);
            continue;
        }
        K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
            if (r < at->rows) {
                float score[AHEAD];
                const uint32_t seen =
                    few_scores(args, at, state, &round, base + group, groups, r, score);
                few_add(args, state, &round, r, seen, score);
            }
        }
    }
}

/* ---- what the groups have found ---- */

/* The block's shared memory: of each group and row a state of `pitch` floats, then the shares of
 * the groups in each row, then the highest score of each row. */
typedef struct few_shared {
    float *state, *share, *top;
    int32_t pitch, groups;
} few_shared;

K_FN float *few_of_group(const few_shared *s, int32_t group, int32_t r) {
    return s->state + (group * ROWS + r) * s->pitch;
}

K_FN void few_leave(const mp_attention_args *args, const few *at, few_state *state, int32_t first,
                    int32_t group, const few_shared *s) {
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        float *mine = few_of_group(s, group, r);
        if (first == 0) {
            mine[0] = state->top[r];
            mine[1] = state->total[r];
        }
        few_scale(args, 1, at, first, args->v_head_size, state->sum[r]);
        K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
            if (first + e < args->v_head_size) {
                mine[K_ATTENTION_STATE + first + e] = state->sum[r][e];
            }
        }
    }
}

/* What the sums of each group are multiplied by, in each row. */
K_FN void few_find_shares(const few *at, const few_shared *s) {
    K_BLOCK_LOOP(i, at->rows * s->groups) {
        const int32_t r = (int32_t)i / s->groups, g = (int32_t)i % s->groups;
        const float *mine = few_of_group(s, g, r);
        float top = A_NONE;
        for (int32_t n = 0; n < s->groups; n++) {
            const float other = few_of_group(s, n, r)[0];
            top = other > top ? other : top;
        }
        s->share[i] = mine[1] == 0 ? 0 : expf(mine[0] - top);
        if (g == 0) {
            s->top[r] = top;
        }
    }
}

/* Element `d` of row `r` over all groups: the sum of weights, the weighted sum. */
K_FN void few_gather(const few_shared *s, int32_t r, int32_t d, float *total, float *sum) {
    const float *share = s->share + r * s->groups;
    *total = 0;
    *sum = 0;
    for (int32_t g = 0; g < s->groups; g++) {
        const float *state = few_of_group(s, g, r);
        *total += share[g] * state[1];
        *sum += share[g] == 0 ? 0 : share[g] * state[K_ATTENTION_STATE + d];
    }
}

K_FN void few_write(const mp_attention_args *args, const few *at, const few_shared *s) {
    const k_score_rule *rule = &args->rule;
    K_BLOCK_LOOP(i, at->rows * args->v_head_size) {
        const int32_t r = (int32_t)i / args->v_head_size, d = (int32_t)i % args->v_head_size;
        int32_t head, row;
        float total, sum;
        few_find_row(rule, at, r, &head, &row);
        few_gather(s, r, d, &total, &sum);
        if (args->splits == 1) {
            const float sink = a_sink(rule, head);
            const float top = sink > s->top[r] ? sink : s->top[r];
            const float share = total == 0 ? 0 : expf(s->top[r] - top);
            const float norm = a_norm(top, total * share, sink);
            ((T *)args->out)[at->entry * args->out_stride[0] + head * args->out_stride[1] +
                             row * args->out_stride[2] + d] = T_store(sum * share * norm);
        } else {
            const int64_t line = (at->entry * rule->heads + head) * rule->rows + row;
            float *part = (float *)args->part + (line * args->splits + at->split) * s->pitch;
            if (d == 0) {
                part[0] = s->top[r];
                part[1] = total;
            }
            part[K_ATTENTION_STATE + d] = sum;
        }
    }
}

K_FN void few_unit(const mp_attention_args *args, int64_t unit, const few_shared *s) {
    const int32_t lanes = K_HOST ? 1 : args->group_lanes;
    const int32_t group = (int32_t)threadIdx.x / lanes;
    const int32_t first = (int32_t)threadIdx.x % lanes * SLICE;
    const few at = few_place(args, unit);
    if (group < s->groups) {
        few_state state;
        few_keys(args, &at, first, group, s->groups, &state);
        few_leave(args, &at, &state, first, group, s);
    }
    __syncthreads();
    few_find_shares(&at, s);
    __syncthreads();
    few_write(args, &at, s);
    __syncthreads();
}

K_BLOCK_KERNEL_UP_TO(K_ATTENTION_LANES, mp_attention_args, args) {
    K_SHARED(float, shared);
    const k_score_rule *rule = &args.rule;
    const int32_t most = (int32_t)blockDim.x / (K_HOST ? 1 : args.group_lanes);
    few_shared s;
    s.state = shared;
    s.pitch = args.v_head_size + K_ATTENTION_STATE;
    s.groups = most < args.groups ? most : args.groups;
    s.share = s.state + s.groups * ROWS * s.pitch;
    s.top = s.share + s.groups * ROWS;
    const int64_t row_blocks = a_divide(rule->group * rule->rows + ROWS - 1, ROWS);
    const int64_t units = rule->batch * rule->kv_heads * row_blocks * args.splits;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        few_unit(&args, unit, &s);
    }
}
