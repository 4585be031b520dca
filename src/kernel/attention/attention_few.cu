/* attention_few.cu - attention for up to K_ROWS queries at a time, above all one new token: bound
 * by reading keys and values once. A few lanes share a key and hold eight elements of the head
 * each; groups of lanes take keys in turn, each with a maximum and sums of its own, which meet in
 * shared memory at the end. The queries of all heads that share a key head are one block's, and
 * long caches are split over blocks, whose sums attention_combine.cu adds up.
 *
 * On the emulated device a group is one lane that holds the whole head.
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
enum { ROWS = K_ROWS, AHEAD = K_ROWS == 1 ? 4 : 2 /* keys that are loaded at a time */ };

/* Where a block works, and what it knows of its rows. */
typedef struct few {
    int64_t entry, kv_head, row_first, split;
    int32_t rows;
    int64_t from, to; /* keys */
    int64_t length;
} few;

/* What a group has of its rows. */
typedef struct few_state {
    float q[ROWS][SLICE], sum[ROWS][SLICE];
    float top[ROWS], total[ROWS];
} few_state;

K_FN few few_place(const mp_attention_args *args, int64_t unit) {
    const k_score_rule *rule = &args->rule;
    const int64_t rows = rule->group * rule->rows;
    const int64_t row_blocks = (rows + ROWS - 1) / ROWS;
    few at;
    at.split = unit % args->splits;
    const int64_t row_unit = unit / args->splits;
    const int64_t head_unit = row_unit / row_blocks;
    at.row_first = row_unit % row_blocks * ROWS;
    at.rows = (int32_t)(rows - at.row_first < ROWS ? rows - at.row_first : ROWS);
    at.kv_head = head_unit % rule->kv_heads;
    at.entry = head_unit / rule->kv_heads;
    at.length = a_length(rule, at.entry);
    const int64_t first = at.split * args->split_keys, end = first + args->split_keys;
    const int64_t from = a_visible(rule, at.length, 0).from;
    const int64_t to = a_visible(rule, at.length, rule->rows - 1).to;
    at.from = first > from ? first : from;
    at.to = end < to ? end : to;
    return at;
}

/* One new token for each head needs no division, which would be asked for with each key. */
K_FN int64_t few_head(const k_score_rule *rule, const few *at, int32_t r) {
    if (rule->rows == 1) {
        return at->kv_head * rule->group + at->row_first + r;
    }
    return at->kv_head * rule->group + (at->row_first + r) / rule->rows;
}

K_FN int64_t few_row(const k_score_rule *rule, const few *at, int32_t r) {
    return rule->rows == 1 ? 0 : (at->row_first + r) % rule->rows;
}

K_FN void few_slice(const T *row, int32_t first, int32_t size, int32_t wide, float *out) {
    K_UNROLL for (int32_t e = 0; e < SLICE; e += A_PIECE) {
        if (e == 0 || e < size) {
            a_load(row, first + e, size, wide, out + e);
        }
    }
}

#if K_CACHE
typedef uint8_t few_kv;

K_FN void few_kv_slice(const mp_attention_args *args, const few_kv *row, int32_t first,
                       int32_t size, float *out) {
    const int32_t aligned = (uint64_t)row % 8 == 0;
    K_UNROLL for (int32_t e = 0; e < SLICE; e += K_GROUP) {
        const int32_t at = first + e;
        uint32_t bits[K_GROUP];
        if (at >= size) {
            if (e == 0) {
                K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
                    out[k] = 0;
                }
            }
            continue;
        }
        const int32_t count = n_group_size(at, size);
        n_group_load(row, args->cache.type.width, at, count, aligned, bits);
        K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
            const float value = n_from_bits(&args->cache.type, bits[k]);
            out[e + k] = k < count ? value - (float)args->cache.zero : 0;
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

K_FN void few_kv_slice(const mp_attention_args *args, const few_kv *row, int32_t first,
                       int32_t size, float *out) {
    few_slice(row, first, size, args->wide, out);
}

K_FN void few_scale(const mp_attention_args *args, int32_t side, const few *at, int32_t first,
                    int32_t size, float *values) {
    (void)args, (void)side, (void)at, (void)first, (void)size, (void)values;
}
#endif

/* The sum over the lanes of a group. */
K_LANES_SUM(few_meet, float)

K_FN void few_add(few_state *state, int32_t r, float score, const float *v, int32_t size) {
    if (score > state->top[r]) {
        const float shrink = state->total[r] == 0 ? 0 : expf(state->top[r] - score);
        state->top[r] = score;
        state->total[r] *= shrink;
        K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
            if (!K_HOST || e < size) {
                state->sum[r][e] *= shrink;
            }
        }
    }
    const float weight = a_weight(score, state->top[r]);
    state->total[r] += weight;
    K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
        if (!K_HOST || e < size) {
            state->sum[r][e] += weight * v[e];
        }
    }
}

/* Where a row's mask begins is found again for each key: a register for each row is worth more. */
K_FN float few_masked(const k_score_rule *rule, const few *at, int32_t r, int64_t key,
                      float score) {
    const int64_t row = few_row(rule, at, r);
    if (rule->mask_kind != K_MASK_NONE) {
        const int64_t first = a_mask_row(rule, at->entry, few_head(rule, at, r), row);
        score = a_masked(rule, first, key, score);
    }
    if (rule->padding_kind != K_PADDING_NONE) {
        score = a_padded(rule, a_padding_row(rule, at->entry, row), at->entry, key, score);
    }
    return score;
}

/* The keys of one group: from `at->from` + its number in steps of `groups`. Every group makes the
 * same number of rounds, since lanes of several groups meet in few_meet. */
K_FN void few_keys(const mp_attention_args *args, const few *at, few_state *state, int32_t first,
                   int32_t group, int32_t groups) {
    const k_score_rule *rule = &args->rule;
    const few_kv *k = (const few_kv *)args->k + at->kv_head * args->k_stride[1];
    const few_kv *v = (const few_kv *)args->v + at->kv_head * args->v_stride[1];
    int32_t from[ROWS] = {0}, to[ROWS] = {0};
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        if (r < at->rows) {
            const a_span span = a_visible(rule, at->length, few_row(rule, at, r));
            from[r] = (int32_t)span.from;
            to[r] = (int32_t)span.to;
        }
    }
    for (int64_t base = at->from; base < at->to; base += (int64_t)groups * AHEAD) {
        float keys[AHEAD][SLICE], values[AHEAD][SLICE];
        K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
            const int64_t key = base + group + (int64_t)n * groups;
            const int64_t read = key < at->to ? key : at->from;
            const int64_t entry = b_entry(&args->beams, at->entry, read);
            few_kv_slice(args, k + entry * args->k_stride[0] + read * args->k_stride[2], first,
                         args->head_size, keys[n]);
            few_kv_slice(args, v + entry * args->v_stride[0] + read * args->v_stride[2], first,
                         args->v_head_size, values[n]);
        }
        K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
            const int64_t key = base + group + (int64_t)n * groups;
            K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
                if (r < at->rows) {
                    float dot = 0;
                    K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
                        if (!K_HOST || e < args->head_size) {
                            dot += state->q[r][e] * keys[n][e];
                        }
                    }
                    dot = few_meet(dot, args->group_lanes);
                    if (key < at->to && key >= from[r] && key < to[r]) {
                        const float score = few_masked(rule, at, r, key, a_capped(rule, dot));
                        few_add(state, r, score, values[n], args->v_head_size);
                    }
                }
            }
        }
    }
}

/* Element `d` of row `r` over all groups: its maximum, the sum of weights, the weighted sum. */
K_FN void few_gather(const float *shared, int32_t pitch, int32_t groups, int32_t r, int32_t d,
                     float *out) {
    float top = A_NONE;
    for (int32_t g = 0; g < groups; g++) {
        const float other = shared[(g * ROWS + r) * pitch];
        top = other > top ? other : top;
    }
    float total = 0, sum = 0;
    for (int32_t g = 0; g < groups; g++) {
        const float *state = shared + (g * ROWS + r) * pitch;
        const float share = state[1] == 0 ? 0 : expf(state[0] - top);
        total += share * state[1];
        sum += share == 0 ? 0 : share * state[K_ATTENTION_STATE + d];
    }
    out[0] = top;
    out[1] = total;
    out[2] = sum;
}

K_FN void few_write(const mp_attention_args *args, const few *at, const float *shared,
                    int32_t pitch, int32_t groups) {
    const k_score_rule *rule = &args->rule;
    K_BLOCK_LOOP(i, at->rows * args->v_head_size) {
        const int32_t r = (int32_t)(i / args->v_head_size), d = (int32_t)(i % args->v_head_size);
        const int64_t head = few_head(rule, at, r), row = few_row(rule, at, r);
        float all[3];
        few_gather(shared, pitch, groups, r, d, all);
        if (args->splits == 1) {
            const float sink = a_sink(rule, head);
            const float top = sink > all[0] ? sink : all[0];
            const float share = all[1] == 0 ? 0 : expf(all[0] - top);
            const float norm = a_norm(top, all[1] * share, sink);
            ((T *)args->out)[at->entry * args->out_stride[0] + head * args->out_stride[1] +
                             row * args->out_stride[2] + d] = T_store(all[2] * share * norm);
        } else {
            const int64_t line = (at->entry * rule->heads + head) * rule->rows + row;
            float *part = (float *)args->part + (line * args->splits + at->split) * pitch;
            if (d == 0) {
                part[0] = all[0];
                part[1] = all[1];
            }
            part[K_ATTENTION_STATE + d] = all[2];
        }
    }
}

K_BLOCK_KERNEL_UP_TO(K_ATTENTION_LANES, mp_attention_args, args) {
    K_SHARED(float, shared);
    const k_score_rule *rule = &args.rule;
    const int32_t lanes = K_HOST ? 1 : args.group_lanes;
    const int32_t most = (int32_t)blockDim.x / lanes;
    const int32_t groups = most < args.groups ? most : args.groups;
    const int32_t group = (int32_t)threadIdx.x / lanes;
    const int32_t first = (int32_t)threadIdx.x % lanes * SLICE;
    const int32_t pitch = args.v_head_size + K_ATTENTION_STATE;
    const int64_t row_blocks = (rule->group * rule->rows + ROWS - 1) / ROWS;
    const int64_t units = rule->batch * rule->kv_heads * row_blocks * args.splits;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const few at = few_place(&args, unit);
        if (group < groups) {
            few_state state;
            K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
                state.top[r] = A_NONE;
                state.total[r] = 0;
                K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
                    state.q[r][e] = 0;
                    state.sum[r][e] = 0;
                }
                if (r < at.rows) {
                    const T *q = (const T *)args.q + at.entry * args.q_stride[0] +
                                 few_head(rule, &at, r) * args.q_stride[1] +
                                 few_row(rule, &at, r) * args.q_stride[2];
                    few_slice(q, first, args.head_size, args.wide, state.q[r]);
                    few_scale(&args, 0, &at, first, args.head_size, state.q[r]);
                }
            }
            few_keys(&args, &at, &state, first, group, groups);
            K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
                float *mine = shared + (group * ROWS + r) * pitch;
                if (first == 0) {
                    mine[0] = state.top[r];
                    mine[1] = state.total[r];
                }
                few_scale(&args, 1, &at, first, args.v_head_size, state.sum[r]);
                K_UNROLL for (int32_t e = 0; e < SLICE; e++) {
                    if (first + e < args.v_head_size) {
                        mine[K_ATTENTION_STATE + first + e] = state.sum[r][e];
                    }
                }
            }
        }
        __syncthreads();
        few_write(&args, &at, shared, pitch, groups);
        __syncthreads();
    }
}
