/* decode.h - where a block of attention_decode.cu works, and how a lane of it has queries, keys and
 * values.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DECODE_H
#define MP_KERNEL_DECODE_H

#include "kernel/attention/decode_kept.h"
#include "kernel/core/late.h"

enum {
    HEAD = K_HEAD,
    ROWS = K_DECODE_ROWS,
    KEYS = K_DECODE_KEYS(K_HEAD, K_CODES),
    PIECES = HEAD / A_PIECE,
    HALF = HEAD / 2,
    LANES = 32,
    STORED = K_WARP_MATRIX ? 4 : HEAD /* elements that a lane stores at a time */
};

/* Where a block works. */
typedef struct decode {
    int64_t entry, kv_head;
    int32_t split, row_first, rows;
} decode;

typedef struct decode_line {
    int64_t head, row;
} decode_line;

K_FN decode decode_place(const mp_attention_args *args, uint32_t block) {
    const k_score_rule *rule = &args->rule;
    const uint32_t unit = k_divide(block, args->by_splits);
    const uint32_t head_unit = k_divide(unit, args->by_row_blocks);
    const uint32_t entry = k_divide(head_unit, args->by_kv_heads);
    const int32_t rows = (int32_t)(rule->group * rule->rows);
    decode at;
    at.split = (int32_t)(block - unit * (uint32_t)args->splits);
    at.row_first = (int32_t)(unit - head_unit * (uint32_t)args->row_blocks) * ROWS;
    at.rows = rows - at.row_first < ROWS ? rows - at.row_first : ROWS;
    at.entry = entry;
    at.kv_head = head_unit - entry * (uint32_t)rule->kv_heads;
    return at;
}

/* Row `r` of a block; rows that are not there are the first. */
K_FN decode_line decode_line_at(const mp_attention_args *args, const decode *at, int32_t r) {
    const uint32_t n = (uint32_t)(at->row_first + (r < at->rows ? r : 0));
    const uint32_t in_group = k_divide(n, args->by_rows);
    decode_line line;
    line.head = at->kv_head * args->rule.group + in_group;
    line.row = n - in_group * (uint32_t)args->rule.rows;
    return line;
}

K_FN const T *decode_query(const mp_attention_args *args, const decode *at, decode_line line) {
    return (const T *)args->q + at->entry * args->q_stride[0] + line.head * args->q_stride[1] +
           line.row * args->q_stride[2];
}

#if K_WARP_MATRIX

#define DECODE_ALL 0xffffffffu

enum {
    SIDES = KEYS / 8, /* keys of a product */
    KEY_PIECES = (PIECES + 3) / 4,
    VALUE_PIECES = (PIECES + 7) / 8,
    EARLY = HEAD <= 128 /* values are asked for with the keys: otherwise there is no room */
};

static_assert(HEAD % 16 == 0 && KEYS % 16 == 0, "products are of 16 elements and of 16 keys");

/* Where a lane's first pieces of keys and of values lie, and how far rows are from each other. */
typedef struct decode_source {
    const decode_kv *k, *v;
    const k_pages *pages;
    int32_t k_step, v_step;
    int32_t last, last_masked; /* keys: the last one, and the last one that the mask has */
    int32_t g, t;
} decode_source;

typedef struct decode_keys {
    decode_kept of[SIDES][KEY_PIECES];
} decode_keys;

typedef struct decode_values {
    decode_kept of[SIDES][2][VALUE_PIECES];
} decode_values;

K_FN int32_t decode_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* The row of the key behind `more` others of a tile, whose first is `key`. Beyond the last key of
 * neighbours that one is loaded, and left out later; a block has them all. */
K_FN int64_t decode_row_of(const decode_source *from, decode_tile tile, int32_t key, int32_t more) {
    if (!K_PAGES) {
        return decode_least(key + more, from->last);
    }
    const int32_t room = from->pages->table != 0 ? more : from->last - key;
    return decode_first_row(from->pages, tile) + decode_least(more, room);
}

K_FN void decode_load_keys(const decode_source *from, decode_tile tile, int32_t key,
                           decode_keys *out) {
    const int32_t is_kept = decode_is_there(from->pages, tile);
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        const int64_t row = decode_row_of(from, tile, key, s * 8 + from->g);
        K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
            const int32_t is_there = c * 4 + 3 < PIECES || c * 4 + from->t < PIECES;
            out->of[s][c] = decode_take_kept(from->k + row * from->k_step + c * 4 * A_PIECE,
                                             is_kept && is_there);
        }
    }
}

/* Has the keys and values of a tile on their way to the cache that all multiprocessors share. */
K_FN void decode_bring(const decode_source *from, int32_t key) {
    enum { LINE = 128 / (int)sizeof(decode_kv), LINES = (HEAD + LINE - 1) / LINE };
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    K_ONE_COPY for (int32_t i = lane; i < KEYS * LINES; i += LANES) {
        const int64_t row = decode_least(key + i / LINES, from->last);
        const int32_t d = i % LINES * LINE;
        k_bring(from->k - from->t * A_PIECE + row * from->k_step + d);
        k_bring(from->v - from->g * A_PIECE + row * from->v_step + d);
    }
}

K_FN void decode_load_values(const decode_source *from, decode_tile tile, int32_t key,
                             decode_values *out) {
    const int32_t is_kept = decode_is_there(from->pages, tile);
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 2; e++) {
            const int64_t row = decode_row_of(from, tile, key, s * 8 + from->t * 2 + e);
            K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
                const int32_t is_there = m * 8 + 7 < PIECES || m * 8 + from->g < PIECES;
                out->of[s][e][m] = decode_take_kept(from->v + row * from->v_step + m * 8 * A_PIECE,
                                                    is_kept && is_there);
            }
        }
    }
}

#endif

#endif
