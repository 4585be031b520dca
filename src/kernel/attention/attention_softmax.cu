/* attention_softmax.cu - scores that a matrix product left become weights, for attention in three
 * steps: soft cap, mask, softmax over the keys that a query sees, 0 for the others. One block a
 * row, which is read once for its maximum and sum and once more for the weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/core/block.h"

#if T_DOUBLE
#define s_block_max k_block_max_f64
#define s_block_sum k_block_sum_f64
#else
#define s_block_max k_block_max_f32
#define s_block_sum k_block_sum_f32
#endif

/* The row's place: in the whole result and in the buffer. */
typedef struct s_row {
    int64_t entry, head, query;
    int64_t local, line;
} s_row;

K_FN s_row s_place(const mp_attention_softmax_args *args, int64_t i) {
    const k_score_rule *rule = &args->rule;
    const int64_t unit = args->unit_first + i / args->rows;
    const int64_t row = args->row_first + i % args->rows;
    s_row at;
    at.local = i;
    at.line = unit * rule->group * rule->rows + row;
    at.entry = unit / rule->kv_heads;
    at.head = unit % rule->kv_heads * rule->group + row / rule->rows;
    at.query = row % rule->rows;
    return at;
}

/* The score, -inf where it is left out. */
K_FN TA s_score(const k_score_rule *rule, a_span span, int64_t mask_row, int64_t key, TA capped) {
    return key >= span.from && key < span.to ? a_masked(rule, mask_row, key, capped) : A_NONE;
}

K_BLOCK_KERNEL_UP_TO(1024, mp_attention_softmax_args, args) {
    const k_score_rule *rule = &args.rule;
    for (int64_t i = blockIdx.x; i < args.units * args.rows; i += gridDim.x) {
        const s_row at = s_place(&args, i);
        const T *scores = (const T *)args.scores + at.local * args.columns;
        T *weights = (T *)args.weights + at.local * args.columns;
        T *debug = args.debug == 0 ? 0 : (T *)args.debug + at.line * rule->keys;
        const a_span span = a_visible(rule, a_length(rule, at.entry), at.query);
        const int64_t mask_row = a_mask_row(rule, at.entry, at.head, at.query);
        TA largest = A_NONE, sum = 0;
        K_BLOCK_LOOP(key, args.columns) {
            const TA capped = a_capped(rule, (TA)T_load(scores[key]));
            const TA score = s_score(rule, span, mask_row, key, capped);
            if (debug != 0) {
                const TA scaled = (TA)T_load(scores[key]) * (TA)rule->scale;
                debug[key] = T_store(args.debug_mode == 0   ? scaled
                                     : args.debug_mode == 1 ? capped
                                                            : score);
            }
            if (score > largest) {
                sum = sum == 0 ? 0 : sum * K_M(exp)(largest - score);
                largest = score;
            }
            sum += a_weight(score, largest);
        }
        const TA sink = a_sink(rule, at.head);
        const TA seen = s_block_max(largest);
        const TA top = sink > seen ? sink : seen;
        sum = s_block_sum(sum == 0 ? 0 : sum * K_M(exp)(largest - top));
        const TA norm = a_norm(top, sum, sink);
        K_BLOCK_LOOP(key, args.columns) {
            const TA capped = a_capped(rule, (TA)T_load(scores[key]));
            weights[key] =
                T_store(a_weight(s_score(rule, span, mask_row, key, capped), top) * norm);
        }
    }
}
