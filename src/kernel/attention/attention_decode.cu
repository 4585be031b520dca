/* attention_decode.cu - attention for a new token or a few, by tensor cores, for types of two
 * bytes, heads of K_HEAD elements and rules that leave scores as they are: no padding or cap, and
 * a mask, of the same type or boolean, only where K_MASKED says so.
 *
 * Bound by reading keys and values once, so a block has up to eight queries of a key head, those of
 * several heads side by side, and a warp asks for all of a tile of keys and of values before it
 * looks at the first, and for the next tile's as soon as it has used them. They go from memory to
 * registers as the products want them: a sum over a head may take its elements in any order, so a
 * lane reads 16 bytes of one row. With g = lane / 4 and t = lane % 4 a lane has
 *
 *     q, k       piece 4 c + t of eight elements, of query g and of key 8 s + g
 *     v          piece 8 m + g of keys 8 s + 2 t and of the next one
 *     scores     those of query g with these two keys
 *     sums       of piece 8 m + g, for queries 2 t and 2 t + 1
 *
 * Long caches are split over the blocks of a cluster. What the warps of a block have found is added
 * up in its shared memory, and what the blocks have, in that of the one which writes the element.
 * Where there are no clusters, attention_combine.cu adds up what blocks have found.
 *
 * With K_FRESH there is a query an entry, and nothing was done yet to it and to the key and value
 * of its token. Both halves of a pair of a query are in the pieces of one lane, which norms and
 * rotates them where they are. Each warp does so with the key for itself, too, and takes it and the
 * value in the place of what the caches have; one warp of all that share a key head puts them
 * there.
 *
 * With K_PAGES and K_CODES keys and values lie as decode_kept.h says. Codes become numbers of T on
 * their way to products; what their scales leave over, those of values above all, goes with sums.
 *
 * Where there are no tensor cores (the emulated device, GPUs before 8.0) a lane takes rows by plain
 * loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/decode_fresh.h"
#include "kernel/core/late.h"
#include "kernel/core/meet.h"

/* Scores are powers of two, but with masks powers of e: the lowest numbers of a mask must not
 * become infinite, nor be rounded by more than scores differ. */
#define DECODE_LOG2_E 1.44269504F
#define DECODE_LN_2   0.69314718F

/* Sums of weighted values, what weights are relative to, and their sum: as the operator's
 * result, or as attention_combine.cu reads them. */
K_FN void decode_store(const mp_attention_args *args, const decode *at, int32_t r, int32_t d,
                       const float *found, const float *sum) {
    const decode_line line = decode_line_at(args, at, r);
    if (args->part == 0) {
        const float norm = a_norm(found[0], found[1], a_sink(&args->rule, line.head));
        T *out = (T *)args->out + at->entry * args->out_stride[0] +
                 line.head * args->out_stride[1] + line.row * args->out_stride[2] + d;
        K_UNROLL for (int32_t i = 0; i < STORED; i++) {
            out[i] = T_store(sum[i] * norm * decode_scale(args, 1, at->kv_head, d + i));
        }
        return;
    }
    const int64_t number = (at->entry * args->rule.heads + line.head) * args->rule.rows + line.row;
    float *part =
        (float *)args->part + (number * args->splits + at->split) * (HEAD + K_ATTENTION_STATE);
    if (d == 0) {
        part[0] = found[0];
        part[1] = found[1];
    }
    K_UNROLL for (int32_t i = 0; i < STORED; i++) {
        part[K_ATTENTION_STATE + d + i] = sum[i] * decode_scale(args, 1, at->kv_head, d + i);
    }
}

#if K_WARP_MATRIX

#define decode_product K_JOIN(k_mma_, K_T0)
#define decode_pair    K_JOIN(k_pair_, K_T0)

/* 2 or e to a difference of scores. */
K_FN float decode_power(float x) {
    return k_exp2(K_MASKED ? x * DECODE_LOG2_E : x);
}

/* What a lane's keys have added to their scores. */
typedef struct decode_mask {
    float of[SIDES][2];
} decode_mask;

typedef struct decode_state {
    float out[VALUE_PIECES][4][4];
    float top, total; /* of query g; the sum of the lane's own keys */
} decode_state;

/* `row`: where the mask of the lane's query begins. */
K_FN void decode_load_mask(const k_score_rule *rule, int64_t row, const decode_source *from,
                           int32_t key, decode_mask *out) {
    const int32_t is_bool = rule->mask_kind == K_MASK_BOOL;
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 2; e++) {
            const int64_t own = decode_least(key + s * 8 + from->t * 2 + e, from->last_masked);
            const int64_t at = row + own * rule->mask_stride[3];
            float more = 0;
            if (!K_MASKED) {
                continue;
            }
            if (is_bool) {
                more = k_load_bool(((const k_bool *)rule->mask)[at]) ? 0 : A_NONE;
            } else {
                more = T_load(((const T *)rule->mask)[at]);
            }
            out->of[s][e] = more;
        }
    }
}

K_FN void decode_scores(const decode_pack *q, const decode_keys *k, float (*score)[4]) {
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[s][e] = 0;
        }
    }
    K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
        K_UNROLL for (int32_t h = 0; h < 4; h += 2) {
            const uint32_t a[4] = {q[c].word[h], 0, q[c].word[h + 1], 0};
            K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
                const decode_kept *kept = &k->of[s][c];
                const uint32_t b[2] = {decode_word(kept, h), decode_word(kept, h + 1)};
                decode_product(score[s], a, b);
            }
        }
    }
}

/* Scores become weights: those of keys that the query does not see are 0. What was added up before
 * shrinks where one is the highest so far. */
K_FN void decode_weights(float scale, const decode_source *from, int32_t key, a_span span,
                         const decode_mask *mask, float (*score)[4], decode_state *state) {
    const int32_t first = key + from->t * 2 - (int32_t)span.from;
    const uint32_t count = (uint32_t)(span.to > span.from ? span.to - span.from : 0);
    float top = state->top, sum = 0;
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 2; e++) {
            const int32_t is_seen = (uint32_t)(first + s * 8 + e) < count;
            const float scaled = score[s][e] * scale + (K_MASKED ? mask->of[s][e] : 0);
            score[s][e] = is_seen ? scaled : A_NONE;
            top = fmaxf(top, score[s][e]);
        }
    }
    top = fmaxf(top, __shfl_xor_sync(DECODE_ALL, top, 1));
    top = fmaxf(top, __shfl_xor_sync(DECODE_ALL, top, 2));
    const float base = top == A_NONE ? 0 : top;
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 2; e++) {
            score[s][e] = decode_power(score[s][e] - base);
            sum += score[s][e];
        }
    }
    const float shrink = decode_power(state->top - base);
    const float mine[2] = {__shfl_sync(DECODE_ALL, shrink, from->t * 8),
                           __shfl_sync(DECODE_ALL, shrink, from->t * 8 + 4)};
    state->top = top;
    state->total = state->total * shrink + sum;
    K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
        K_UNROLL for (int32_t i = 0; i < 16; i++) {
            state->out[m][i / 4][i % 4] *= mine[i % 2];
        }
    }
}

/* Values of keys that no query sees may be anything, and 0 times that is not 0. */
K_FN void decode_clear_values(const decode_source *from, int32_t key, a_span span,
                              decode_values *v) {
    if (key >= span.from && key + KEYS <= span.to) {
        return;
    }
    K_UNROLL for (int32_t i = 0; i < SIDES * 2; i++) {
        const int32_t row = key + i / 2 * 8 + from->t * 2 + i % 2;
        const int32_t is_seen = row >= span.from && row < span.to;
        enum { WORDS = (int)sizeof(decode_kept) / 4 };
        K_UNROLL for (int32_t w = 0; w < VALUE_PIECES * WORDS; w++) {
            uint32_t *word = &v->of[i / 2][i % 2][w / WORDS].word[w % WORDS];
            *word = is_seen ? *word : 0;
        }
    }
}

K_FN void decode_add(const decode_values *v, float (*weight)[4], decode_state *state) {
    K_UNROLL for (int32_t s = 0; s < SIDES; s += 2) {
        const uint32_t b[2] = {decode_pair(weight[s][0], weight[s][1]),
                               decode_pair(weight[s + 1][0], weight[s + 1][1])};
        K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
            K_UNROLL for (int32_t j = 0; j < 4; j++) {
                const uint32_t x[4] = {
                    decode_word(&v->of[s][0][m], j), decode_word(&v->of[s][1][m], j),
                    decode_word(&v->of[s + 1][0][m], j), decode_word(&v->of[s + 1][1][m], j)};
                const uint32_t a[4] = {
                    __byte_perm(x[0], x[1], 0x5410), __byte_perm(x[0], x[1], 0x7632),
                    __byte_perm(x[2], x[3], 0x5410), __byte_perm(x[2], x[3], 0x7632)};
                decode_product(state->out[m][j], a, b);
            }
        }
    }
}

/* ---- what warps and blocks have found ---- */

enum { FOUR = STORED, FOURS = HEAD / FOUR, STATE = ROWS * 2 };

/* What several have found: of each a maximum and a sum of weights of each row, and its sums of
 * weighted values. */
typedef struct decode_found {
    float *state, *values;
    int32_t count, pitch; /* floats of one's values */
    int32_t rank;         /* one's own place among the blocks */
} decode_found;

/* In the block's shared memory: of its warps, and behind it of the blocks of the cluster, of which
 * each adds up every so many fours of sums. */
K_FN decode_found decode_of_warps(const decode *at, float *shared) {
    decode_found found;
    found.count = (int32_t)(blockDim.x / LANES);
    found.rank = 0;
    found.pitch = at->rows * HEAD;
    found.state = shared;
    found.values = shared + found.count * STATE;
    return found;
}

K_FN decode_found decode_of_blocks(const mp_attention_args *args, const decode *at,
                                   const decode_found *warps) {
    decode_found found;
    found.count = 1 << args->meet_log;
    found.rank = at->split & (found.count - 1);
    found.pitch = ((warps->pitch / FOUR + found.count - 1) >> args->meet_log) * FOUR;
    found.state = warps->values + warps->count * warps->pitch;
    found.values = found.state + found.count * STATE;
    return found;
}

K_FN void decode_put(float *to, const float *four) {
    decode_pack pack;
    K_UNROLL for (int32_t e = 0; e < FOUR; e++) {
        pack.word[e] = __float_as_uint(four[e]);
    }
    *(k_b128 *)(void *)to = pack.raw;
}

K_FN void decode_leave(const decode *at, const decode_source *from, const decode_found *to,
                       const decode_state *state) {
    const int32_t warp = (int32_t)threadIdx.x / LANES;
    if (from->t == 0) {
        to->state[warp * STATE + from->g * 2] = state->top;
        to->state[warp * STATE + from->g * 2 + 1] = state->total;
    }
    K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
        K_UNROLL for (int32_t r = 0; r < 2; r++) {
            const int32_t piece = m * 8 + from->g, row = from->t * 2 + r;
            if (row < at->rows && piece < PIECES) {
                float *mine = to->values + warp * to->pitch + row * HEAD + piece * A_PIECE;
                K_UNROLL for (int32_t j = 0; j < 4; j += 2) {
                    const float *x = state->out[m][j], *y = state->out[m][j + 1];
                    const float four[FOUR] = {x[r], x[2 + r], y[r], y[2 + r]};
                    decode_put(mine + j * 2, four);
                }
            }
        }
    }
}

/* Adds up four sums of row `r`, which begin at `place` of everyone's values: what all have found,
 * a maximum and a sum of weights. */
K_FN void decode_gather(const decode_found *all, int32_t r, int32_t place, float *found,
                        float *sum) {
    enum { AT_ONCE = 4 };
    const float *state = all->state + r * 2;
    float top = A_NONE;
    K_ONE_COPY for (int32_t first = 0; first < all->count; first += AT_ONCE) {
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            top = fmaxf(top, state[decode_least(first + i, all->count - 1) * STATE]);
        }
    }
    const float base = top == A_NONE ? 0 : top;
    found[0] = top;
    found[1] = 0;
    K_UNROLL for (int32_t e = 0; e < FOUR; e++) {
        sum[e] = 0;
    }
    K_ONE_COPY for (int32_t first = 0; first < all->count; first += AT_ONCE) {
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            const int32_t n = decode_least(first + i, all->count - 1);
            const float *values = all->values + n * all->pitch + place;
            const float share = first + i < all->count ? decode_power(state[n * STATE] - base) : 0;
            found[1] += share * state[n * STATE + 1];
            K_UNROLL for (int32_t e = 0; e < FOUR; e++) {
                sum[e] += share * values[e];
            }
        }
    }
}

/* Bytes that decode_send() brings to this block, of all. */
K_FN uint32_t decode_sent(const decode *at, const decode_found *to, int32_t log) {
    const int32_t fours = (at->rows * FOURS + to->count - 1 - to->rank) >> log;
    return (uint32_t)(to->count * (fours * FOUR + at->rows * 2)) * sizeof(float);
}

/* To the block that adds up the blocks' sums, and what these are relative to to all of them. */
K_FN void decode_send(uint64_t *box, const decode_found *to, int32_t log, int32_t r, int32_t four,
                      const float *found, const float *sum) {
    float *values = to->values + to->rank * to->pitch + (four >> log) * FOUR;
    float *state = to->state + to->rank * STATE + r * 2;
    k_box_send_four(box, values, four & (to->count - 1), sum);
    /* the row's first lanes have a block each */
    K_ONE_COPY for (int32_t b = four - r * FOURS; b < to->count; b += FOURS) {
        k_box_send(box, state, b, found[0]);
        k_box_send(box, state + 1, b, found[1]);
    }
}

/* What the warps have found is there; each lane adds up some of it, and then of what the blocks
 * have, by one text. */
K_FN void decode_meet(const mp_attention_args *args, const decode *at, decode_found all,
                      uint64_t *box) {
    const decode_found blocks = decode_of_blocks(args, at, &all);
    const int32_t fours = at->rows * FOURS;
    int32_t log = 0, mine = 0;
    K_ONE_COPY for (;;) {
        const int32_t is_last = log == args->meet_log;
        K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < all.pitch / FOUR;
                        i += (int32_t)blockDim.x) {
            const int32_t four = (i << log) + mine, r = four / FOURS;
            float found[2], sum[FOUR];
            if (four >= fours) {
                continue;
            }
            decode_gather(&all, r, i * FOUR, found, sum);
            if (is_last) {
                found[0] *= K_MASKED ? 1 : DECODE_LN_2;
                decode_store(args, at, r, (four - r * FOURS) * FOUR, found, sum);
            } else {
                decode_send(box, &blocks, args->meet_log, r, four, found, sum);
            }
        }
        if (is_last) {
            return;
        }
        k_box_wait(box);
        all = blocks;
        log = args->meet_log;
        mine = blocks.rank;
    }
}

/* ---- a block ---- */

K_FN decode_source decode_source_of(const mp_attention_args *args, const k_pages *pages,
                                    const decode *at) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    decode_source from;
    from.g = lane / 4;
    from.t = lane % 4;
    from.pages = pages;
    from.k = (const decode_kv *)args->k + at->entry * args->k_stride[0] +
             at->kv_head * args->k_stride[1] + from.t * A_PIECE;
    from.v = (const decode_kv *)args->v + at->entry * args->v_stride[0] +
             at->kv_head * args->v_stride[1] + from.g * A_PIECE;
    from.k_step = (int32_t)args->k_stride[2];
    from.v_step = (int32_t)args->v_stride[2];
    from.last = (int32_t)args->rule.keys - 1;
    from.last_masked = K_MASKED && args->rule.mask_keys <= from.last
                           ? (int32_t)args->rule.mask_keys - 1
                           : from.last;
    return from;
}

/* The first key of the first tile of a warp. Only what lies before a window has to wait for the
 * length. */
K_FN int32_t decode_first_key(const mp_attention_args *args, const decode *at) {
    const k_score_rule *rule = &args->rule;
    const int32_t warps = (int32_t)(blockDim.x / LANES);
    int32_t key = (at->split * warps + (int32_t)threadIdx.x / LANES) * KEYS;
    if (rule->window > 0) {
        const int64_t length = a_length(rule, at->entry);
        key += (int32_t)a_visible(rule, length, 0).from / KEYS * KEYS;
    }
    return key;
}

/* A warp has every so many tiles, and asks for the first before it looks at the length. A new
 * token's angles have to wait for that, which is then asked for before all else, and waited for
 * behind the tile. `room`: shared memory of the warp, for a row of keys and of values. */
K_FN void decode_run(const mp_attention_args *args, const k_fresh *fresh, const decode *at,
                     const decode_source *from, decode_kept *room, decode_state *state) {
    const k_score_rule *rule = &args->rule;
    const int32_t step = (int32_t)(blockDim.x / LANES) * (int32_t)args->splits * KEYS;
    const decode_line line = decode_line_at(args, at, from->g);
    const T *query = decode_query(args, at, line) + from->t * A_PIECE;
    if (K_FRESH && rule->window > 0) {
        k_wait(); /* for the length */
    }
    int32_t key = decode_first_key(args, at);
    const int64_t mask_row = a_mask_row(rule, at->entry, line.head, line.row);
    decode_keys k;
    decode_values v;
    decode_mask mask;
    decode_pack q[KEY_PIECES];
    decode_given given;
    decode_asked asked;
    decode_own own;
    decode_tile tile = decode_tile_at(from->pages, at->entry, key);
    decode_tile tile_ahead = decode_tile_at(from->pages, at->entry, key + step);
    if (K_FRESH) {
        decode_bring(from, key);
        k_wait();
        given = decode_given_at(args, fresh, at->entry);
    }
    K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
        const int32_t is_there = c * 4 + 3 < PIECES || c * 4 + from->t < PIECES;
        q[c] = decode_take(query + c * 4 * A_PIECE, is_there && from->g < at->rows);
    }
    if (K_FRESH) {
        decode_ask(fresh, at, &asked);
    }
    decode_load_keys(from, tile, key, &k);
    if (EARLY) {
        decode_load_values(from, tile, key, &v);
    }
    const float scale = (float)rule->scale * (K_MASKED ? 1 : DECODE_LOG2_E) *
                        decode_scale_query(args, at->kv_head, from->t, KEY_PIECES, q);
    decode_load_mask(rule, mask_row, from, key, &mask);
    if (K_FRESH) {
        own = decode_meet_token(args, fresh, at, from, given, &asked, q, room);
    }
    int64_t entry = at->entry;
    if (!K_FRESH) {
        K_HOLD_PLACE(entry); /* otherwise the length would be asked for, and waited for, above */
    }
    const int64_t length = a_length(rule, entry);
    const a_span span = a_visible(rule, length, line.row);
    const a_span none = {0, 0};
    const a_span all = {a_visible(rule, length, 0).from,
                        a_visible(rule, length, rule->rows - 1).to};
    K_ONE_COPY do {
        const int32_t next = key + step, is_more = next < all.to;
        const decode_tile tile_next = tile_ahead;
        tile_ahead = decode_tile_at(from->pages, at->entry, next + step);
        const int32_t is_own = K_FRESH && decode_has(&own, key);
        float score[SIDES][4];
        if (is_own) {
            decode_mend_keys(from, key, &own, &k);
        }
        decode_scores(q, &k, score);
        if (!EARLY) {
            decode_load_values(from, tile, key, &v);
        } else if (is_more) {
            decode_load_keys(from, tile_next, next, &k);
        }
        decode_weights(scale, from, key, decode_is_there(from->pages, tile) ? span : none, &mask,
                       score, state);
        if (is_more) {
            decode_load_mask(rule, mask_row, from, next, &mask);
        }
        if (is_own) {
            decode_mend_values(from, key, &own, &v);
        }
        decode_clear_values(from, key, all, &v);
        decode_add(&v, score, state);
        if (is_more && EARLY) {
            decode_load_values(from, tile_next, next, &v);
        } else if (is_more) {
            decode_load_keys(from, tile_next, next, &k);
        }
        key = next;
        tile = tile_next;
    }
    while (key < all.to)
        ;
    if (K_FRESH) {
        __syncwarp(); /* all lanes have read what is there */
    }
}

K_FN void decode_block(const mp_attention_args *args, const k_fresh *fresh, const k_pages *pages,
                       const decode *at, float *shared) {
    const decode_source from = decode_source_of(args, pages, at);
    uint64_t *box = (uint64_t *)(void *)shared;
    const decode_found warps = decode_of_warps(at, shared + K_DECODE_BOX);
    decode_state state;
    if (args->meet_log > 0) {
        const decode_found blocks = decode_of_blocks(args, at, &warps);
        k_box_open(box, decode_sent(at, &blocks, args->meet_log));
        k_cluster_begin();
    }
    state.top = A_NONE;
    state.total = 0;
    K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
        K_UNROLL for (int32_t i = 0; i < 16; i++) {
            state.out[m][i / 4][i % 4] = 0;
        }
    }
    float *room = warps.values + (int32_t)threadIdx.x / LANES * warps.pitch;
    decode_run(args, fresh, at, &from, (decode_kept *)(void *)room, &state);
    state.total += __shfl_xor_sync(DECODE_ALL, state.total, 1);
    state.total += __shfl_xor_sync(DECODE_ALL, state.total, 2);
    decode_leave(at, &from, &warps, &state);
    __syncthreads();
    if (args->meet_log > 0) {
        k_cluster_wait();
    }
    decode_meet(args, at, warps, box);
}

#else

K_FN float decode_dot(const mp_attention_args *args, int64_t kv_head, const T *q,
                      const decode_kv *k) {
    float dot = 0;
    K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
        dot += T_load(q[d]) * (decode_element(k[d]) * decode_scale(args, 0, kv_head, d));
    }
    return dot;
}

/* Rows of a key and of its value; 0 for one of no block. */
typedef struct decode_rows {
    const decode_kv *k, *v;
} decode_rows;

K_FN decode_rows decode_rows_of(const mp_attention_args *args, const k_pages *pages,
                                const decode *at, int64_t key) {
    const int64_t first = key / KEYS * KEYS;
    const decode_tile tile = decode_tile_at(pages, at->entry, (int32_t)first);
    const int64_t row = decode_first_row(pages, tile) + key - first;
    decode_rows rows = {0, 0};
    if (decode_is_there(pages, tile)) {
        rows.k = (const decode_kv *)args->k + at->entry * args->k_stride[0] +
                 at->kv_head * args->k_stride[1] + row * args->k_stride[2];
        rows.v = (const decode_kv *)args->v + at->entry * args->v_stride[0] +
                 at->kv_head * args->v_stride[1] + row * args->v_stride[2];
    }
    return rows;
}

#if K_FRESH
/* The new token's rows in the place of those that caches have. */
K_FN decode_rows decode_own_rows(const decode_own *own, int64_t key, decode_rows rows) {
    if (key == own->row) {
        rows.k = own->k;
        rows.v = own->v;
    }
    return rows;
}
#endif

/* A row and the block's share of the keys. */
K_FN void decode_row(const mp_attention_args *args, const k_fresh *fresh, const k_pages *pages,
                     const decode *at, int32_t r) {
    const k_score_rule *rule = &args->rule;
    const decode_line line = decode_line_at(args, at, r);
    const a_span span = a_visible(rule, a_length(rule, at->entry), line.row);
    const T *q = decode_query(args, at, line);
#if K_FRESH
    const decode_given given = decode_given_at(args, fresh, at->entry);
    const decode_token token = decode_token_of(args, fresh, at, given);
    decode_own own;
    decode_own_of(fresh, at, &token, q, &own);
    q = own.q;
    if (at->split + at->row_first + r == 0) {
        decode_append(&token, &own);
    }
#endif
    (void)fresh;
    const int64_t mask_row = a_mask_row(rule, at->entry, line.head, line.row);
    float top = A_NONE, total = 0, sum[HEAD] = {0};
    K_ONE_COPY for (int64_t key = span.from; key < span.to; key++) {
        if (key / KEYS % args->splits != at->split) {
            continue;
        }
        decode_rows rows = decode_rows_of(args, pages, at, key);
        if (rows.k == 0) {
            continue;
        }
#if K_FRESH
        rows = decode_own_rows(&own, key, rows);
#endif
        const float plain = decode_dot(args, at->kv_head, q, rows.k) * (float)rule->scale;
        const float score = K_MASKED ? a_masked(rule, mask_row, key, plain) : plain;
        const float before = top;
        top = score > top ? score : top;
        const float shrink = total == 0 ? 0 : expf(before - top), weight = a_weight(score, top);
        total = total * shrink + weight;
        K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
            sum[d] = sum[d] * shrink + weight * decode_element(rows.v[d]);
        }
    }
    const float found[2] = {top, total};
    decode_store(args, at, r, 0, found, sum);
}

K_FN void decode_block(const mp_attention_args *args, const k_fresh *fresh, const k_pages *pages,
                       const decode *at, float *shared) {
    (void)shared;
    if (K_FRESH) {
        k_wait();
    }
    K_BLOCK_LOOP(r, at->rows) {
        decode_row(args, fresh, pages, at, (int32_t)r);
    }
}

#endif

#if K_FRESH
/* With so few registers a block of four warps comes up beside two of nbits_stream.cu. */
K_BLOCK_KERNEL_LATE_WITHIN(184, K_DECODE_WARPS * 32, mp_fresh_args, args) {
    K_SHARED(float, shared);
    const decode at = decode_place(&args.attention, blockIdx.x);
    decode_block(&args.attention, &args.fresh, 0, &at, shared);
}
#elif K_PAGES
K_BLOCK_KERNEL_UP_TO(K_DECODE_WARPS * 32, mp_pages_args, args) {
    K_SHARED(float, shared);
    const decode at = decode_place(&args.attention, blockIdx.x);
    decode_block(&args.attention, 0, &args.pages, &at, shared);
}
#else
K_BLOCK_KERNEL_UP_TO(K_DECODE_WARPS * 32, mp_attention_args, args) {
    K_SHARED(float, shared);
    const decode at = decode_place(&args, blockIdx.x);
    decode_block(&args, 0, 0, &at, shared);
}
#endif
