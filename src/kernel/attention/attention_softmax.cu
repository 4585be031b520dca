/* attention_softmax.cu - scores that a matrix product left become weights, for attention in three
 * steps: soft cap, mask, softmax over the keys that a query sees, 0 for the others. One block a
 * row; a long one is read once for its maximum and sum and once more for the weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/core/block.h"
#include "kernel/core/index.h"

#if T_DOUBLE
#define s_block_max k_block_max_f64
#define s_block_sum k_block_sum_f64
#else
#define s_block_max k_block_max_f32
#define s_block_sum k_block_sum_f32
#endif

enum { S_KEEP = 8 }; /* scores of a lane */

/* The row's place: in the whole result and in the buffer. */
typedef struct s_row {
    int64_t entry, head, query;
    int64_t local, line;
} s_row;

K_FN s_row s_place(const mp_attention_softmax_args *args, int64_t i) {
    const k_score_rule *rule = &args->rule;
    const int64_t local_unit = k_divide_any(i, args->rows);
    const int64_t unit = args->unit_first + local_unit;
    const int64_t row = args->row_first + (i - local_unit * args->rows);
    const int64_t inner = k_divide_any(row, rule->rows);
    s_row at;
    at.local = i;
    at.line = unit * rule->group * rule->rows + row;
    at.entry = k_divide_any(unit, rule->kv_heads);
    at.head = (unit - at.entry * rule->kv_heads) * rule->group + inner;
    at.query = row - inner * rule->rows;
    return at;
}

/* What the weights of a row are made from. */
typedef struct s_line {
    const T *scores;
    T *weights, *debug;
    a_span span;
    int64_t entry, mask_row, padding_row;
    TA sink;
} s_line;

/* The score, -inf where it is left out. */
K_FN TA s_score(const k_score_rule *rule, const s_line *line, int64_t key, TA capped) {
    if (key < line->span.from || key >= line->span.to) {
        return A_NONE;
    }
    const TA score = a_masked(rule, line->mask_row, key, capped);
    return a_padded(rule, line->padding_row, line->entry, key, score);
}

K_FN TA s_at(const k_score_rule *rule, const s_line *line, int64_t key) {
    const TA capped = a_capped(rule, (TA)T_load(line->scores[key]));
    return s_score(rule, line, key, capped);
}

/* A row that the lanes of the block keep. */
K_FN void s_short(const mp_attention_softmax_args *args, const s_line *line) {
    const k_score_rule *rule = &args->rule;
    TA kept[S_KEEP], largest = A_NONE, sum = 0;
    K_UNROLL
    for (int32_t k = 0; k < S_KEEP; k++) {
        const int64_t key = threadIdx.x + (int64_t)k * blockDim.x;
        kept[k] = key < args->columns ? s_at(rule, line, key) : A_NONE;
        largest = kept[k] > largest ? kept[k] : largest;
    }
    const TA seen = s_block_max(largest);
    const TA top = line->sink > seen ? line->sink : seen;
    K_UNROLL
    for (int32_t k = 0; k < S_KEEP; k++) {
        kept[k] = a_weight(kept[k], top);
        sum += kept[k];
    }
    sum = s_block_sum(sum);
    const TA norm = a_norm(top, sum, line->sink);
    K_UNROLL
    for (int32_t k = 0; k < S_KEEP; k++) {
        const int64_t key = threadIdx.x + (int64_t)k * blockDim.x;
        if (key < args->columns) {
            line->weights[key] = T_store(kept[k] * norm);
        }
    }
}

K_FN void s_long(const mp_attention_softmax_args *args, const s_line *line) {
    const k_score_rule *rule = &args->rule;
    TA largest = A_NONE, sum = 0;
    K_BLOCK_LOOP(key, args->columns) {
        const TA capped = a_capped(rule, (TA)T_load(line->scores[key]));
        const TA score = s_score(rule, line, key, capped);
        if (line->debug != 0) {
            const TA scaled = (TA)T_load(line->scores[key]) * (TA)rule->scale;
            line->debug[key] = T_store(args->debug_mode == 0   ? scaled
                                       : args->debug_mode == 1 ? capped
                                                               : score);
        }
        if (score > largest) {
            sum = sum == 0 ? 0 : sum * K_M(exp)(largest - score);
            largest = score;
        }
        sum += a_weight(score, largest);
    }
    const TA seen = s_block_max(largest);
    const TA top = line->sink > seen ? line->sink : seen;
    sum = s_block_sum(sum == 0 ? 0 : sum * K_M(exp)(largest - top));
    const TA norm = a_norm(top, sum, line->sink);
    K_BLOCK_LOOP(key, args->columns) {
        line->weights[key] = T_store(a_weight(s_at(rule, line, key), top) * norm);
    }
}

K_BLOCK_KERNEL_UP_TO(1024, mp_attention_softmax_args, args) {
    const k_score_rule *rule = &args.rule;
    for (int64_t i = blockIdx.x; i < args.units * args.rows; i += gridDim.x) {
        const s_row at = s_place(&args, i);
        s_line line;
        line.scores = (const T *)args.scores + at.local * args.pitch;
        line.weights = (T *)args.weights + at.local * args.pitch;
        line.debug = args.debug == 0 ? 0 : (T *)args.debug + at.line * rule->keys;
        line.span = a_visible(rule, a_length(rule, at.entry), at.query);
        line.entry = at.entry;
        line.mask_row = a_mask_row(rule, at.entry, at.head, at.query);
        line.padding_row = a_padding_row(rule, at.entry, at.query);
        line.sink = a_sink(rule, at.head);
        if (args.debug == 0 && args.columns <= (int64_t)S_KEEP * blockDim.x) {
            s_short(&args, &line);
        } else {
            s_long(&args, &line);
        }
    }
}
