/* attention_tile.cu - attention for many queries: a tile of queries stays in shared memory while
 * tiles of keys and values pass, with a running maximum and sum of each row. Heads that share a
 * key head are rows of one tile. All arithmetic is float: a lane takes 4 x 4 products at a time,
 * whose operands are read four at once, since Q, K and the weights lie with their rows as
 * neighbours.
 *
 *     q      [head size][tile_rows + 4]
 *     kv     K as [head size][tile_keys + 4], then V as [tile_keys][v size]
 *     weight [tile_keys][tile_rows + 4]
 *     sum    [tile_rows][v size]
 *     top, total, shrink, from, to, mask_row, padding_row: one a row; part: four a row
 *     seen   [K_TILE_WINDOW][2], with K_BLOCKS: a bit for each row that sees a block of keys
 *
 * With K_LISTED some tokens are listed: those are rows of tiles of their own, which come first,
 * since they are the longest, and see all keys; behind the keys that the other rows see by the rule
 * pass the listed ones. How many there are is read here: a tile beyond the list has nothing to do.
 *
 * With K_BLOCKS rows see some blocks of the keys. Which ones is found for a window of blocks at a
 * time, and tiles of keys that no row sees are passed over.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"

enum { SIDE = 4, PARTS = 4 /* in which a row is looked at */ };

typedef struct K_ALIGN(16) tile_four {
    float of[SIDE];
} tile_four;

typedef struct tile {
    float *q, *kv, *weight, *sum, *top, *total, *shrink, *part;
    int32_t *from, *to;
    uint32_t *seen;
    int64_t *mask_row, *padding_row;
    int32_t head, value; /* sizes, rounded up to 8 */
    int32_t rows, keys;  /* of a tile */
    int32_t row_pitch, key_pitch;
    int64_t entry, kv_head, row_first, row_count;
    const T *from_q, *from_k, *from_v;
#if K_LISTED
    const int32_t *flags, *list; /* of the entry */
    int64_t listed;              /* tokens on the list */
    int32_t own;                 /* the rows are these tokens */
    int32_t passing;             /* so are the keys */
#endif
    int64_t window; /* the first block of it */
} tile;

K_FN int32_t tile_padded(int32_t size) {
    return (size + A_PIECE - 1) / A_PIECE * A_PIECE;
}

K_FN tile tile_layout(const mp_attention_args *args, unsigned char *shared) {
    tile t;
    t.head = tile_padded(args->head_size);
    t.value = tile_padded(args->v_head_size);
    t.rows = args->tile_rows;
    t.keys = args->tile_keys;
    t.row_pitch = t.rows + SIDE;
    t.key_pitch = t.keys + SIDE;
    const int32_t keys_size = t.head * t.key_pitch, values_size = t.keys * t.value;
    t.mask_row = (int64_t *)(void *)shared;
    t.padding_row = t.mask_row + t.rows;
    t.q = (float *)(void *)(t.padding_row + t.rows);
    t.kv = t.q + t.head * t.row_pitch;
    t.weight = t.kv + (keys_size > values_size ? keys_size : values_size);
    t.sum = t.weight + t.keys * t.row_pitch;
    t.top = t.sum + t.rows * t.value;
    t.total = t.top + t.rows;
    t.shrink = t.total + t.rows;
    t.part = t.shrink + t.rows;
    t.from = (int32_t *)(void *)(t.part + PARTS * t.rows);
    t.to = t.from + t.rows;
    t.seen = (uint32_t *)(t.to + t.rows);
    t.window = 0;
    return t;
}

K_FN int64_t tile_head(const k_score_rule *rule, const tile *t, int64_t r) {
    return t->kv_head * rule->group + (t->row_first + r) / rule->rows;
}

/* The query that row `r` is; negative for none. */
K_FN int64_t tile_query(const k_score_rule *rule, const tile *t, int64_t r) {
    if (r >= t->row_count) {
        return -1;
    }
#if K_LISTED
    (void)rule;
    if (t->own) {
        return t->list[t->row_first + r];
    }
    return t->flags[t->row_first + r] == 0 ? t->row_first + r : -1;
#else
    return (t->row_first + r) % rule->rows;
#endif
}

/* The key at a position among those that pass. */
K_FN int64_t tile_key(const tile *t, int64_t position) {
#if K_LISTED
    if (t->passing) {
        return position < t->listed ? t->list[position] : -1;
    }
#endif
    (void)t;
    return position;
}

/* The keys that a query sees as they pass one after the other. */
K_FN a_span tile_span(const k_score_rule *rule, const tile *t, int64_t length, int64_t head,
                      int64_t query) {
    a_span span = {0, 0};
#if K_LISTED
    const int64_t mask_row = a_mask_row(rule, t->entry, head, query);
    if (query < 0 || a_masked(rule, mask_row, query, 0) < 0) {
        return span;
    }
    if (t->own) {
        span.to = rule->keys;
        return span;
    }
#endif
    (void)t, (void)head;
    return query < 0 ? span : a_visible(rule, length, query);
}

/* Whether a row sees a key; of listed ones only those that it has not seen by its span. */
K_FN int32_t tile_sees(const tile *t, int64_t r, int64_t key) {
    const int32_t inside = key >= t->from[r] && key < t->to[r];
#if K_LISTED
    if (t->passing) {
        return key >= 0 && t->from[r] < t->to[r] && !inside;
    }
#endif
    return inside;
}

/* ---- blocks ---- */

enum { WORDS = K_TILE_SEEN_WORDS, WORD = 32 };

K_FN void tile_mark(uint32_t *word, uint32_t bit) {
#if K_HOST
    *word |= bit; /* lanes of a block take turns */
#else
    atomicOr(word, bit);
#endif
}

/* Which rows see which blocks of the window that begins at `first`. */
K_FN void tile_look(const k_score_rule *rule, tile *t, int64_t first) {
    t->window = first;
    __syncthreads(); /* the window before is still looked at */
    K_BLOCK_LOOP(i, K_TILE_WINDOW * WORDS) {
        t->seen[i] = 0;
    }
    __syncthreads();
    const int64_t length = a_length(rule, t->entry);
    K_BLOCK_LOOP(i, t->row_count * PARTS) {
        const int32_t r = (int32_t)(i / PARTS);
        const int64_t at = a_position(rule, length, tile_query(rule, t, r));
        const a_span span = a_columns(&rule->blocks, tile_head(rule, t, r), at);
        for (int64_t c = span.from + i % PARTS; c < span.to; c += PARTS) {
            const int64_t block = rule->blocks.columns[c] - first;
            if (block >= 0 && block < K_TILE_WINDOW) {
                tile_mark(t->seen + block * WORDS + r / WORD, 1u << r % WORD);
            }
        }
    }
    __syncthreads();
}

/* Whether any row sees any of the keys of a tile. */
K_FN int tile_is_seen(const k_score_rule *rule, const tile *t, int64_t key, int64_t end) {
    const int64_t last = (key + t->keys < end ? key + t->keys : end) - 1;
    const uint32_t size = (uint32_t)rule->blocks.size;
    for (int64_t b = (uint32_t)key / size; b <= (uint32_t)last / size; b++) {
        for (int32_t w = 0; w < WORDS; w++) {
            if (t->seen[(b - t->window) * WORDS + w]) {
                return 1;
            }
        }
    }
    return 0;
}

/* A window ends where a tile does. */
K_FN int tile_sees_block(const k_score_rule *rule, const tile *t, int32_t r, int64_t key) {
    if (K_BLOCKS == 0) {
        return 1;
    }
    const int64_t block = (int64_t)((uint32_t)key / (uint32_t)rule->blocks.size) - t->window;
    return t->seen[block * WORDS + r / WORD] >> r % WORD & 1;
}

/* ---- tiles ---- */

/* Q and what is known of its rows. */
K_FN void tile_begin(const mp_attention_args *args, const tile *t) {
    const k_score_rule *rule = &args->rule;
    const int64_t length = a_length(rule, t->entry);
    const T *q = t->from_q + t->entry * args->q_stride[0];
    K_BLOCK_LOOP(r, t->rows) {
        const int64_t row = tile_query(rule, t, r);
        const a_span span = tile_span(rule, t, length, tile_head(rule, t, r), row);
        t->from[r] = (int32_t)span.from;
        t->to[r] = (int32_t)span.to;
        t->mask_row[r] = a_mask_row(rule, t->entry, tile_head(rule, t, r), row);
        t->padding_row[r] = a_padding_row(rule, t->entry, row);
        t->top[r] = A_NONE;
        t->total[r] = 0;
        t->shrink[r] = 0;
    }
    K_BLOCK_LOOP(i, t->rows * (t->head / A_PIECE)) {
        const int64_t r = i % t->rows;
        const int32_t d = (int32_t)(i / t->rows) * A_PIECE;
        const int64_t row = tile_query(rule, t, r);
        float part[A_PIECE] = {0};
        if (row >= 0) {
            a_load(q + tile_head(rule, t, r) * args->q_stride[1] + row * args->q_stride[2], d,
                   args->head_size, args->wide, part);
        }
        K_UNROLL for (int32_t e = 0; e < A_PIECE; e++) {
            t->q[(d + e) * t->row_pitch + r] = part[e];
        }
    }
    K_BLOCK_LOOP(i, t->rows * t->value) {
        t->sum[i] = 0;
    }
}

/* Lanes take neighbouring keys, so that neighbours in shared memory are written together. */
K_FN void tile_load_keys(const mp_attention_args *args, const tile *t, int64_t key_first,
                         int64_t key_end) {
    const T *k = t->from_k + t->entry * args->k_stride[0] + t->kv_head * args->k_stride[1];
    K_BLOCK_LOOP(i, t->keys * (t->head / A_PIECE)) {
        const int64_t key = i % t->keys;
        const int32_t d = (int32_t)(i / t->keys) * A_PIECE;
        float part[A_PIECE] = {0};
        if (key_first + key < key_end) {
            a_load(k + tile_key(t, key_first + key) * args->k_stride[2], d, args->head_size,
                   args->wide, part);
        }
        K_UNROLL for (int32_t e = 0; e < A_PIECE; e++) {
            t->kv[(d + e) * t->key_pitch + key] = part[e];
        }
    }
}

K_FN void tile_load_values(const mp_attention_args *args, const tile *t, int64_t key_first,
                           int64_t key_end) {
    const T *v = t->from_v + t->entry * args->v_stride[0] + t->kv_head * args->v_stride[1];
    const int64_t pieces = t->value / A_PIECE;
    K_BLOCK_LOOP(i, t->keys * pieces) {
        const int64_t key = i / pieces;
        const int32_t d = (int32_t)(i % pieces) * A_PIECE;
        float part[A_PIECE] = {0};
        if (key_first + key < key_end) {
            a_load(v + tile_key(t, key_first + key) * args->v_stride[2], d, args->v_head_size,
                   args->wide, part);
        }
        K_UNROLL for (int32_t e = 0; e < A_PIECE; e++) {
            t->kv[key * t->value + d + e] = part[e];
        }
    }
}

/* Adds 4 x 4 products, `count` of each: a[i][row] * b[i][column]. */
K_FN void tile_product(const float *a, int32_t a_pitch, const float *b, int32_t b_pitch,
                       int32_t count, float (*out)[SIDE]) {
    for (int32_t i = 0; i < count; i++) {
        const tile_four x = *(const tile_four *)(const void *)(a + i * a_pitch);
        const tile_four y = *(const tile_four *)(const void *)(b + i * b_pitch);
        K_UNROLL for (int32_t r = 0; r < SIDE; r++) {
            K_UNROLL for (int32_t c = 0; c < SIDE; c++) {
                out[r][c] += x.of[r] * y.of[c];
            }
        }
    }
}

K_FN void tile_scores(const mp_attention_args *args, const tile *t, int64_t key_first) {
    const k_score_rule *rule = &args->rule;
    const int64_t across = t->keys / SIDE;
    K_BLOCK_LOOP(i, t->rows / SIDE * across) {
        const int32_t r0 = (int32_t)(i / across) * SIDE, c0 = (int32_t)(i % across) * SIDE;
        float dot[SIDE][SIDE] = {{0}};
        tile_product(t->q + r0, t->row_pitch, t->kv + c0, t->key_pitch, t->head, dot);
        K_UNROLL for (int32_t c = 0; c < SIDE; c++) {
            const int64_t key = tile_key(t, key_first + c0 + c);
            tile_four column;
            K_UNROLL for (int32_t r = 0; r < SIDE; r++) {
                float score = A_NONE;
                if (tile_sees(t, r0 + r, key) && tile_sees_block(rule, t, r0 + r, key)) {
                    score = a_masked(rule, t->mask_row[r0 + r], key, a_capped(rule, dot[r][c]));
                    score = a_padded(rule, t->padding_row[r0 + r], t->entry, key, score);
                }
                column.of[r] = score;
            }
            *(tile_four *)(void *)(t->weight + (c0 + c) * t->row_pitch + r0) = column;
        }
    }
}

/* Scores become weights. A NaN is passed over for the maximum and stays in the sum. */
K_FN void tile_weights(const tile *t) {
    const int32_t share = t->keys / PARTS;
    K_BLOCK_LOOP(i, t->rows * PARTS) {
        const int32_t r = (int32_t)(i % t->rows), first = (int32_t)(i / t->rows) * share;
        float top = A_NONE;
        for (int32_t c = first; c < first + share; c++) {
            const float score = t->weight[c * t->row_pitch + r];
            top = score > top ? score : top;
        }
        t->part[i] = top;
    }
    __syncthreads();
    K_BLOCK_LOOP(r, t->rows) {
        float top = t->top[r];
        for (int32_t part = 0; part < PARTS; part++) {
            const float other = t->part[part * t->rows + r];
            top = other > top ? other : top;
        }
        t->shrink[r] = t->total[r] == 0 ? 0 : expf(t->top[r] - top);
        t->top[r] = top;
    }
    __syncthreads();
    K_BLOCK_LOOP(i, t->rows * PARTS) {
        const int32_t r = (int32_t)(i % t->rows), first = (int32_t)(i / t->rows) * share;
        const float top = t->top[r];
        float sum = 0;
        for (int32_t c = first; c < first + share; c++) {
            float *at = t->weight + c * t->row_pitch + r;
            *at = a_weight(*at, top);
            sum += *at;
        }
        t->part[i] = sum;
    }
}

K_FN void tile_values(const tile *t) {
    K_BLOCK_LOOP(r, t->rows) {
        float sum = 0;
        for (int32_t part = 0; part < PARTS; part++) {
            sum += t->part[part * t->rows + r];
        }
        t->total[r] = t->total[r] * t->shrink[r] + sum;
    }
    const int64_t across = t->value / SIDE;
    K_BLOCK_LOOP(i, t->rows / SIDE * across) {
        const int32_t r0 = (int32_t)(i / across) * SIDE, d0 = (int32_t)(i % across) * SIDE;
        float sum[SIDE][SIDE];
        K_UNROLL for (int32_t r = 0; r < SIDE; r++) {
            const float shrink = t->shrink[r0 + r];
            const tile_four before =
                *(const tile_four *)(const void *)(t->sum + (r0 + r) * t->value + d0);
            K_UNROLL for (int32_t d = 0; d < SIDE; d++) {
                sum[r][d] = shrink == 0 ? 0 : before.of[d] * shrink;
            }
        }
        tile_product(t->weight + r0, t->row_pitch, t->kv + d0, t->value, t->keys, sum);
        K_UNROLL for (int32_t r = 0; r < SIDE; r++) {
            tile_four after;
            K_UNROLL for (int32_t d = 0; d < SIDE; d++) {
                after.of[d] = sum[r][d];
            }
            *(tile_four *)(void *)(t->sum + (r0 + r) * t->value + d0) = after;
        }
    }
}

K_FN void tile_end(const mp_attention_args *args, const tile *t) {
    const k_score_rule *rule = &args->rule;
    K_BLOCK_LOOP(i, t->row_count * args->v_head_size) {
        const int64_t r = i / args->v_head_size, d = i % args->v_head_size;
        const int64_t head = tile_head(rule, t, r), row = tile_query(rule, t, r);
        if (K_LISTED && row < 0) {
            continue; /* a row of another tile */
        }
        const float sink = a_sink(rule, head);
        const float top = sink > t->top[r] ? sink : t->top[r];
        const float share = t->total[r] == 0 ? 0 : expf(t->top[r] - top);
        const float norm = a_norm(top, t->total[r] * share, sink);
        ((T *)args->out)[t->entry * args->out_stride[0] + head * args->out_stride[1] +
                         row * args->out_stride[2] + d] =
            T_store(t->sum[r * t->value + d] * share * norm);
    }
}

/* The keys that any row of the tile sees. */
K_FN a_span tile_keys_seen(const k_score_rule *rule, const tile *t) {
    const int64_t length = a_length(rule, t->entry);
    const int64_t last = t->row_first + t->row_count - 1;
    const int32_t one_head = t->row_first / rule->rows == last / rule->rows;
    a_span span = a_visible(rule, length, one_head ? t->row_first % rule->rows : 0);
    span.to = a_visible(rule, length, one_head ? last % rule->rows : rule->rows - 1).to;
    return span;
}

/* The keys [seen.from, seen.to) pass, of one window where there are blocks. */
K_FN void tile_pass(const mp_attention_args *args, const tile *t, a_span seen) {
    for (int64_t key = seen.from; key < seen.to; key += t->keys) {
        if (K_BLOCKS && !tile_is_seen(&args->rule, t, key, seen.to)) {
            continue;
        }
        tile_load_keys(args, t, key, seen.to);
        __syncthreads();
        tile_scores(args, t, key);
        __syncthreads();
        tile_load_values(args, t, key, seen.to);
        tile_weights(t);
        __syncthreads();
        tile_values(t);
        __syncthreads();
    }
}

/* Tile `i` of the rows of all key heads. */
K_FN void tile_place(const k_score_rule *rule, tile *t, int64_t i) {
    const int64_t rows = rule->group * rule->rows;
    const int64_t row_tiles = (rows + t->rows - 1) / t->rows;
    const int64_t unit = i / row_tiles;
    t->entry = unit / rule->kv_heads;
    t->kv_head = unit % rule->kv_heads;
    t->row_first = i % row_tiles * t->rows;
    t->row_count = rows - t->row_first < t->rows ? rows - t->row_first : t->rows;
}

#if K_LISTED
/* Sets what the rows of the tile are; a tile of listed tokens may have none. */
K_FN void tile_choose(const mp_listed_args *args, tile *t, int32_t own) {
    const int64_t rows = args->attention.rule.rows, left_max = t->row_count;
    t->own = own;
    t->flags = args->flags + t->entry * rows;
    t->list = args->list + t->entry * rows;
    t->listed = args->list_count[t->entry];
    t->from_q = (const T *)(own ? args->q : args->attention.q);
    t->from_k = (const T *)(own ? args->k : args->attention.k);
    t->from_v = (const T *)(own ? args->v : args->attention.v);
    if (own) {
        const int64_t left = t->listed - t->row_first;
        t->row_count = left < left_max ? left : left_max;
    }
}

K_BLOCK_KERNEL_UP_TO(256, mp_listed_args, args) {
    K_SHARED(unsigned char, shared);
    const mp_attention_args *a = &args.attention;
    const k_score_rule *rule = &a->rule;
    tile t = tile_layout(a, shared);
    const int64_t half = rule->batch * rule->kv_heads * ((rule->rows + t.rows - 1) / t.rows);
    for (int64_t i = blockIdx.x; i < 2 * half; i += gridDim.x) {
        tile_place(rule, &t, i % half);
        tile_choose(&args, &t, i < half);
        if (t.row_count <= 0) {
            continue;
        }
        tile_begin(a, &t);
        K_ONE_COPY for (int32_t pass = 0; pass <= !t.own; pass++) {
            const a_span all = {0, pass ? t.listed : rule->keys};
            t.passing = pass;
            tile_pass(a, &t, t.own || pass ? all : tile_keys_seen(rule, &t));
        }
        __syncthreads();
        tile_end(a, &t);
        __syncthreads();
    }
}
#else
K_BLOCK_KERNEL_UP_TO(256, mp_attention_args, args) {
    K_SHARED(unsigned char, shared);
    const k_score_rule *rule = &args.rule;
    tile t = tile_layout(&args, shared);
    const int64_t row_tiles = (rule->group * rule->rows + t.rows - 1) / t.rows;
    t.from_q = (const T *)args.q;
    t.from_k = (const T *)args.k;
    t.from_v = (const T *)args.v;
    for (int64_t i = blockIdx.x; i < rule->batch * rule->kv_heads * row_tiles; i += gridDim.x) {
        tile_place(rule, &t, i);
        tile_begin(&args, &t);
        const a_span seen = tile_keys_seen(rule, &t);
        if (K_BLOCKS) {
            const int64_t step = (int64_t)K_TILE_WINDOW * rule->blocks.size;
            for (int64_t from = seen.from / step * step; from < seen.to; from += step) {
                const a_span window = {from, from + step < seen.to ? from + step : seen.to};
                tile_look(rule, &t, from / rule->blocks.size);
                tile_pass(&args, &t, window);
            }
        } else {
            tile_pass(&args, &t, seen);
        }
        __syncthreads();
        tile_end(&args, &t);
        __syncthreads();
    }
}
#endif
