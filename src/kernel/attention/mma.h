/* mma.h - which rows and keys a block of attention_mma.cu has.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_H
#define MP_KERNEL_MMA_H

#include "kernel/attention/attention.h"
#include "kernel/core/index.h"

/* attention_direct.cu says otherwise. */
#ifndef MMA_KEYS
#define MMA_KEYS     K_MMA_KEYS(K_HEAD, sizeof(T))
#define MMA_ROW_SETS 1
#define MMA_KEEP_Q   (K_HEAD <= 128)
#endif

enum {
    HEAD = K_HEAD,
    KEYS = MMA_KEYS,        /* that a warp takes at a time */
    PIECE = 16 / sizeof(T), /* elements that are copied at a time */
    PITCH = HEAD + PIECE
};

/* Rows of a key head, the least and the largest of their queries, and the keys that any of them
 * sees. */
typedef struct mma_block {
    int64_t entry, kv_head, length;
    int32_t row_first, row_count;
    int32_t query_first, query_last;
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

/* Which block takes turn `i` of `blocks`: every other round goes backwards. */
K_FN uint32_t mma_turn(const mp_attention_args *args, uint32_t i, uint32_t blocks) {
    const uint32_t size = (uint32_t)args->round, round = k_divide(i, args->by_round);
    const uint32_t first = round * size, left = blocks - first;
    const uint32_t count = left < size ? left : size;
    return round % 2 != 0 ? first + (count - 1 - (i - first)) : i;
}

/* A tile of the rows of a unit, but for its keys: nothing is read. */
K_FN mma_block mma_block_at(const mp_attention_args *args, uint32_t unit, uint32_t tile) {
    const k_score_rule *rule = &args->rule;
    const uint32_t rows = (uint32_t)rule->group * (uint32_t)rule->rows;
    const uint32_t each = (uint32_t)args->tile_rows;
    const uint32_t first = tile * each, last = first + each < rows ? first + each - 1 : rows - 1;
    const uint32_t one = (uint32_t)rule->rows, head = k_divide(first, args->by_rows);
    const int32_t one_head = head == k_divide(last, args->by_rows);
    const uint32_t entry = k_divide(unit, args->by_kv_heads);
    mma_block at;
    at.entry = entry;
    at.kv_head = unit - entry * (uint32_t)rule->kv_heads;
    at.row_first = (int32_t)first;
    at.row_count = (int32_t)(last - first + 1);
    at.query_first = (int32_t)(one_head ? first - head * one : 0);
    at.query_last = (int32_t)(one_head ? last - head * one : one - 1);
    return at;
}

/* Block `i`, but for its keys. Later rows see more keys where attention is causal: those come
 * first. Where all come up at once, a multiprocessor that has one with many keys gets one with few
 * in the next round. */
K_FN mma_block mma_place(const mp_attention_args *args, uint32_t i) {
    const k_score_rule *rule = &args->rule;
    const uint32_t row_tiles = (uint32_t)args->row_blocks;
    const uint32_t units = (uint32_t)rule->batch * (uint32_t)rule->kv_heads;
    uint32_t unit = k_divide(i, args->by_row_blocks), tile = i - unit * row_tiles;
    if (rule->causal) {
        const uint32_t turn = mma_turn(args, i, units * row_tiles);
        tile = k_divide(turn, args->by_units);
        unit = turn - tile * units;
        tile = row_tiles - 1 - tile;
    }
    return mma_block_at(args, unit, tile);
}

/* The keys of a block. */
K_FN void mma_reach(const mp_attention_args *args, mma_block *at) {
    const k_score_rule *rule = &args->rule;
    at->length = a_length(rule, at->entry);
    at->from = (int32_t)a_visible(rule, at->length, at->query_first).from;
    at->to = (int32_t)a_visible(rule, at->length, at->query_last).to;
}

/* What row `r` is; rows beyond the last are that one. */
K_FN mma_line mma_line_at(const mp_attention_args *args, const mma_block *at, int32_t r) {
    const k_score_rule *rule = &args->rule;
    const int32_t there = r < at->row_count ? r : at->row_count - 1;
    const uint32_t row = (uint32_t)(at->row_first + there), inner = k_divide(row, args->by_rows);
    mma_line line;
    line.head = at->kv_head * rule->group + inner;
    line.query = row - inner * (uint32_t)rule->rows;
    return line;
}

K_FN mma_row mma_row_at(const mp_attention_args *args, const mma_block *at, int32_t r) {
    const k_score_rule *rule = &args->rule;
    const mma_line line = mma_line_at(args, at, r);
    const a_span span = a_visible(rule, at->length, line.query);
    mma_row row;
    row.mask_row = a_mask_row(rule, at->entry, line.head, line.query);
    row.from = (int32_t)span.from;
    row.to = (int32_t)span.to;
    return row;
}

/* What the sums of a row are multiplied by at its end: one way for all, without branches. Without a
 * sink, -inf, that is 1 / total. */
K_FN float mma_norm(float sink, float top, float total) {
    const float above = sink > top ? sink : top;
    const float share = expf(top - above);
    const float norm = share * (1 / (total * share + expf(sink - above)));
    return total == 0 ? 0 : norm;
}

#endif
