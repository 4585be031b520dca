/* attention.h - what the kernels of attention share: which keys a query sees, what becomes of a
 * score, loads of eight elements. A score that is left out is -inf; a row that sees no key is 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ATTENTION_H
#define MP_KERNEL_ATTENTION_H

#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

#define A_NONE (-(TA)K_INF)

/* Valid keys of a batch entry. */
K_FN int64_t a_length(const k_score_rule *rule, int64_t entry) {
    if (rule->lengths == 0) {
        return rule->keys;
    }
    int64_t given = rule->lengths_wide ? ((const int64_t *)rule->lengths)[entry]
                                       : ((const int32_t *)rule->lengths)[entry];
    if (rule->lengths_summed) {
        given = (int64_t)((const int32_t *)rule->lengths)[entry + 1] - given;
    }
    given = (given < rule->keys ? given : rule->keys) + rule->length_more;
    return given < 0 ? 0 : given < rule->keys ? given : rule->keys;
}

/* Which token of its entry query `row` is. */
K_FN int64_t a_position(const k_score_rule *rule, int64_t length, int64_t row) {
    return row + (rule->past_by_length ? length - rule->rows : rule->past);
}

/* The keys [from, to) that query `row` may see, by all but masks. */
typedef struct a_span {
    int64_t from, to;
} a_span;

K_FN a_span a_visible(const k_score_rule *rule, int64_t length, int64_t row) {
    const int64_t next =
        a_position(rule, length, row) + 1; /* the first key after the query's own */
    a_span span = {0, length < rule->mask_keys ? length : rule->mask_keys};
    if (rule->causal && next < span.to) {
        span.to = next < 0 ? 0 : next;
    }
    if (rule->window > 0 && next > rule->window) {
        span.from = next - rule->window;
    }
    return span;
}

/* Which of the columns name the blocks that a row of blocks sees. */
K_FN a_span a_row_columns(const k_block_rule *blocks, int64_t layout, int64_t row) {
    a_span span = {0, 0};
    if (row < blocks->rows) {
        const int32_t *starts = blocks->starts + layout * (blocks->rows + 1) + row;
        const int64_t from = starts[0] < 0 ? 0 : starts[0], most = from + blocks->rows;
        const int64_t end = starts[1] < blocks->most ? starts[1] : blocks->most;
        const int64_t to = end < most ? end : most; /* a list names each block once */
        span.from = layout * blocks->most + from;
        span.to = from < to ? layout * blocks->most + to : span.from;
    }
    return span;
}

/* The same of a query, by its head and position. */
K_FN a_span a_columns(const k_block_rule *blocks, int64_t head, int64_t position) {
    const a_span none = {0, 0};
    return position < 0 ? none
                        : a_row_columns(blocks, head % blocks->layouts, position / blocks->size);
}

/* Where the mask of a row begins. */
K_FN int64_t a_mask_row(const k_score_rule *rule, int64_t entry, int64_t head, int64_t row) {
    return entry * rule->mask_stride[0] + head * rule->mask_stride[1] + row * rule->mask_stride[2];
}

K_FN TA a_capped(const k_score_rule *rule, TA dot) {
    const TA cap = (TA)rule->softcap;
    const TA score = dot * (TA)rule->scale;
    return cap > 0 ? cap * K_M(tanh)(score / cap) : score;
}

/* `kind` is the rule's, and may be a constant where this is called. */
K_FN TA a_masked_as(int32_t kind, const k_score_rule *rule, int64_t mask_row, int64_t key,
                    TA score) {
    const int64_t at = mask_row + key * rule->mask_stride[3];
    switch (kind) {
    case K_MASK_BOOL:
        return k_load_bool(((const k_bool *)rule->mask)[at]) ? score : A_NONE;
    case K_MASK_F32:
        return score + (TA)((const float *)rule->mask)[at];
    case K_MASK_F64:
        return score + (TA)((const double *)rule->mask)[at];
    case K_MASK_F16:
        return score + (TA)k_load_f16(((const k_f16 *)rule->mask)[at]);
    case K_MASK_BF16:
        return score + (TA)k_load_bf16(((const k_bf16 *)rule->mask)[at]);
    default:
        return score;
    }
}

K_FN TA a_masked(const k_score_rule *rule, int64_t mask_row, int64_t key, TA score) {
    return a_masked_as(rule->mask_kind, rule, mask_row, key, score);
}

/* Where the flags of a row begin. */
K_FN int64_t a_padding_row(const k_score_rule *rule, int64_t entry, int64_t row) {
    return entry * rule->padding_stride[0] + row * rule->padding_stride[1];
}

/* The score of a key, which may be padding. `kind` is the rule's, as above. */
K_FN TA a_padded_as(int32_t kind, const k_score_rule *rule, int64_t padding_row, int64_t entry,
                    int64_t key, TA score) {
    const int32_t *padding = (const int32_t *)rule->padding;
    switch (kind) {
    case K_PADDING_FLAGS:
        return padding[padding_row + key] > 0 ? score : score + (TA)rule->filter;
    case K_PADDING_MARKS:
        return k_load_bool(((const k_bool *)rule->padding)[padding_row + key])
                   ? score + (TA)rule->filter
                   : score;
    case K_PADDING_ENDS:
        return key < padding[entry] ? score : score + (TA)rule->filter;
    case K_PADDING_SPANS:
        return key < padding[entry] && key >= padding[rule->batch + entry]
                   ? score
                   : score + (TA)rule->filter;
    default:
        return score;
    }
}

K_FN TA a_padded(const k_score_rule *rule, int64_t padding_row, int64_t entry, int64_t key,
                 TA score) {
    return a_padded_as(rule->padding_kind, rule, padding_row, entry, key, score);
}

/* The score of the sink of a head; -inf where there is none. */
K_FN TA a_sink(const k_score_rule *rule, int64_t head) {
    if (rule->sink_kind == K_SINK_HEADS) {
        return (TA)T_load(((const T *)rule->sink)[head]);
    }
    return rule->sink_kind == K_SINK_ZERO ? 0 : A_NONE;
}

/* exp(score - top), 0 for what is left out, also where everything is. */
K_FN TA a_weight(TA score, TA top) {
    return score == A_NONE ? 0 : K_M(exp)(score - top);
}

/* What a row's sums are multiplied by at its end, given the sum of its weights. */
K_FN TA a_norm(TA top, TA sum, TA sink) {
    const TA all = sink == A_NONE ? sum : sum + K_M(exp)(sink - top);
    return sum == 0 ? 0 : (TA)1 / all;
}

enum { A_PIECE = 8 };

typedef union a_pack {
    k_b128 raw[sizeof(T) * A_PIECE / 16];
    T item[A_PIECE];
} a_pack;

/* Eight elements of a row of `size`, from `first`, as they lie in memory; 0 beyond its end. Where
 * `wide` is known to the compiler no branch keeps several such loads from being under way at once.
 */
K_FN void a_take(const T *row, int32_t first, int32_t size, int32_t wide, a_pack *out) {
    if (wide) {
        const k_b128 none = {0, 0};
        const k_b128 *from = (const k_b128 *)(const void *)(row + first);
        K_UNROLL for (int32_t i = 0; i < (int32_t)(sizeof(T) * A_PIECE / 16); i++) {
            out->raw[i] = first < size ? from[i] : none;
        }
        return;
    }
    K_UNROLL for (int32_t e = 0; e < A_PIECE; e++) {
        out->item[e] = first + e < size ? row[first + e] : T_store(0);
    }
}

K_FN void a_unpack(const a_pack *pack, TA *out) {
    K_UNROLL for (int32_t e = 0; e < A_PIECE; e++) {
        out[e] = (TA)T_load(pack->item[e]);
    }
}

K_FN void a_load(const T *row, int32_t first, int32_t size, int32_t wide, TA *out) {
    a_pack pack;
    a_take(row, first, size, wide, &pack);
    a_unpack(&pack, out);
}

/* n / d for numbers that are not negative and below 2^31: in a sixth of the time and of the text.
 */
K_FN int64_t a_divide(int64_t n, int64_t d) {
    return (int64_t)((uint32_t)n / (uint32_t)d);
}

#endif
