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
 * Where there are no tensor cores (the emulated device, GPUs before 8.0) a lane takes rows by plain
 * loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/attention/rotary.h"
#include "kernel/core/block.h"
#include "kernel/core/index.h"
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"

enum {
    HEAD = K_HEAD,
    ROWS = K_DECODE_ROWS,
    KEYS = K_DECODE_KEYS(K_HEAD),
    PIECES = HEAD / A_PIECE,
    HALF = HEAD / 2,
    LANES = 32,
    STORED = K_WARP_MATRIX ? 4 : HEAD /* elements that a lane stores at a time */
};

#if K_HOST
#define DECODE_SQRT sqrt
#else
#define DECODE_SQRT sqrtf
#endif
#define DECODE_LOG2_E 1.44269504F
#define DECODE_LN_2   0.69314718F

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

/* ---- a new token ---- */

/* Where a key head's new token belongs in the caches, and where its angles begin. */
typedef struct decode_token {
    T *key, *value;
    int64_t angle, row;
} decode_token;

/* What that follows from, as it is loaded. */
typedef struct decode_given {
    int64_t position;
    int32_t length;
} decode_given;

K_FN decode_given decode_given_at(const mp_attention_args *args, const k_fresh *fresh,
                                  int64_t entry) {
    const int64_t *positions = (const int64_t *)fresh->positions;
    decode_given given;
    given.length = ((const int32_t *)args->rule.lengths)[entry];
    given.position = positions != 0 ? positions[entry] : 0;
    return given;
}

K_FN int64_t decode_within(int64_t place, int64_t count) {
    return place < 0 ? 0 : place < count ? place : count - 1;
}

K_FN decode_token decode_token_of(const mp_attention_args *args, const k_fresh *fresh,
                                  const decode *at, decode_given given) {
    const int64_t before = fresh->prompt ? 0 : given.length;
    const int64_t position = fresh->positions != 0 ? given.position : before;
    decode_token token;
    token.angle = decode_within(position, fresh->cache_rows) * HALF;
    token.row = decode_within(before, fresh->present_rows);
    token.key = (T *)fresh->keys + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1] +
                token.row * args->k_stride[2];
    token.value = (T *)fresh->values + at->entry * args->v_stride[0] +
                  at->kv_head * args->v_stride[1] + token.row * args->v_stride[2];
    return token;
}

K_FN const T *decode_new_key(const k_fresh *fresh, const decode *at) {
    return (const T *)fresh->k + at->entry * fresh->k_stride[0] + at->kv_head * fresh->k_stride[1];
}

K_FN const T *decode_new_values(const k_fresh *fresh, const decode *at) {
    return (const T *)fresh->v + at->entry * fresh->v_stride[0] + at->kv_head * fresh->v_stride[1];
}

/* What a query or a key is multiplied by first, given the sum of its squares. */
K_FN K_SUM decode_inverse(const k_fresh *fresh, K_SUM squares) {
    return (K_SUM)1 / DECODE_SQRT(squares / (K_SUM)HEAD + (K_SUM)fresh->epsilon);
}

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
            out[i] = T_store(sum[i] * norm);
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
        part[K_ATTENTION_STATE + d + i] = sum[i];
    }
}

#if K_WARP_MATRIX

#define decode_product K_JOIN(k_mma_, K_T0)
#define decode_pair    K_JOIN(k_pair_, K_T0)
#define DECODE_ALL     0xffffffffu

enum {
    SIDES = KEYS / 8, /* keys of a product */
    KEY_PIECES = (PIECES + 3) / 4,
    VALUE_PIECES = (PIECES + 7) / 8,
    EARLY = HEAD <= 128 /* values are asked for with the keys: otherwise there is no room */
};

static_assert(!K_FRESH || HEAD == 64 || HEAD == 128,
              "half a key is a word of each lane, or of some");
static_assert(HEAD % 16 == 0 && KEYS % 16 == 0, "products are of 16 elements and of 16 keys");

typedef union decode_pack {
    k_b128 raw;
    uint32_t word[4];
} decode_pack;

/* Where a lane's first pieces of keys and of values lie, and how far rows are from each other. */
typedef struct decode_source {
    const T *k, *v;
    int32_t k_step, v_step;
    int32_t last, last_masked; /* keys: the last one, and the last one that the mask has */
    int32_t g, t;
} decode_source;

typedef struct decode_keys {
    decode_pack of[SIDES][KEY_PIECES];
} decode_keys;

typedef struct decode_values {
    decode_pack of[SIDES][2][VALUE_PIECES];
} decode_values;

/* What a lane's keys have added to their scores, in steps of a power of two. */
typedef struct decode_mask {
    float of[SIDES][2];
} decode_mask;

/* The new token of a warp: its row in the caches, and its key, rotated, and its values in shared
 * memory, since few tiles have it. */
typedef struct decode_own {
    int32_t row;
    decode_pack *k, *v;
} decode_own;

typedef struct decode_state {
    float out[VALUE_PIECES][4][4];
    float top, total; /* of query g, in steps of a power of two; the sum of the lane's own keys */
} decode_state;

/* Asked for where this stands, and not where it is used. */
K_FN decode_pack decode_take(const T *from, int32_t is_there) {
    decode_pack pack;
#if K_PTX
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %5, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@there ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(pack.word[0]), "=&r"(pack.word[1]), "=&r"(pack.word[2]),
                   "=&r"(pack.word[3])
                 : "l"(from), "r"(is_there));
#else
    const k_b128 none = {0, 0};
    pack.raw = is_there ? *(const k_b128 *)(const void *)from : none;
#endif
    return pack;
}

K_FN int32_t decode_least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Beyond the last key that one is loaded, and left out later. */
K_FN void decode_load_keys(const decode_source *from, int32_t key, decode_keys *out) {
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        const int64_t row = decode_least(key + s * 8 + from->g, from->last);
        K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
            const int32_t is_there = c * 4 + 3 < PIECES || c * 4 + from->t < PIECES;
            out->of[s][c] = decode_take(from->k + row * from->k_step + c * 4 * A_PIECE, is_there);
        }
    }
}

K_FN void decode_load_values(const decode_source *from, int32_t key, decode_values *out) {
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        K_UNROLL for (int32_t e = 0; e < 2; e++) {
            const int64_t row = decode_least(key + s * 8 + from->t * 2 + e, from->last);
            K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
                const int32_t is_there = m * 8 + 7 < PIECES || m * 8 + from->g < PIECES;
                out->of[s][e][m] =
                    decode_take(from->v + row * from->v_step + m * 8 * A_PIECE, is_there);
            }
        }
    }
}

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
                more = T_load(((const T *)rule->mask)[at]) * DECODE_LOG2_E;
            }
            out->of[s][e] = more;
        }
    }
}

enum {
    HALF_WORDS = HALF / 2, /* no more than there are lanes */
    VALUE_WORDS = (HEAD / 2 + LANES - 1) / LANES
};

/* What a lane has asked for of a new token: a word of each half of the key, and of values. */
typedef struct decode_asked {
    uint32_t k[2], v[VALUE_WORDS];
} decode_asked;

K_FN const uint32_t *decode_words(const T *from) {
    return (const uint32_t *)(const void *)from + threadIdx.x % LANES;
}

/* Lanes that there are too many ask for what others do. */
K_FN void decode_ask(const k_fresh *fresh, const decode *at, decode_asked *out) {
    const int32_t over = (int32_t)threadIdx.x % LANES / HALF_WORDS * HALF_WORDS;
    const uint32_t *k = decode_words(decode_new_key(fresh, at)) - over;
    const uint32_t *v = decode_words(decode_new_values(fresh, at));
    out->k[0] = k[0];
    out->k[1] = k[HALF_WORDS];
    K_UNROLL for (int32_t i = 0; i < VALUE_WORDS; i++) {
        out->v[i] = v[i * LANES];
    }
}

K_FN float decode_squares(uint32_t word) {
    float x[2];
    T_unpack(word, x);
    return x[0] * x[0] + x[1] * x[1];
}

K_FN void decode_scale_word(uint32_t *word, float inverse, uint32_t scale) {
    float x[2], by[2];
    T_unpack(*word, x);
    T_unpack(scale, by);
    K_UNROLL for (int32_t i = 0; i < 2; i++) {
        x[i] *= inverse;
        x[i] *= by[i];
    }
    *word = T_repack(x);
}

/* Brings a lane's pieces of its query and its part of the new key to a root mean square of 1. All
 * lanes of the warp call. */
K_FN void decode_norm(const k_fresh *fresh, const decode_source *from, decode_pack *q,
                      uint32_t *k) {
    const int32_t lane = (int32_t)threadIdx.x % LANES, over = lane / HALF_WORDS * HALF_WORDS;
    const uint32_t *by = decode_words((const T *)fresh->scale[1]) - over;
    const uint32_t word[2] = {by[0], by[HALF_WORDS]};
    float of_q = 0, of_k = over == 0 ? decode_squares(k[0]) + decode_squares(k[1]) : 0;
    decode_pack scale[KEY_PIECES];
    K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
        scale[c] = decode_take((const T *)fresh->scale[0] + (c * 4 + from->t) * A_PIECE, 1);
    }
    K_UNROLL for (int32_t i = 0; i < KEY_PIECES * 4; i++) {
        of_q += decode_squares(q[i / 4].word[i % 4]);
    }
    K_UNROLL for (int32_t half = LANES / 2; half > 0; half /= 2) {
        of_k += __shfl_xor_sync(DECODE_ALL, of_k, half);
        of_q += half < 4 ? __shfl_xor_sync(DECODE_ALL, of_q, half) : 0;
    }
    of_q = decode_inverse(fresh, of_q);
    of_k = decode_inverse(fresh, of_k);
    K_UNROLL for (int32_t i = 0; i < KEY_PIECES * 4; i++) {
        decode_scale_word(&q[i / 4].word[i % 4], of_q, scale[i / 4].word[i % 4]);
    }
    decode_scale_word(&k[0], of_k, word[0]);
    decode_scale_word(&k[1], of_k, word[1]);
}

/* Two pairs: halves of the words x and y. */
K_FN void decode_turn_words(uint32_t *x, uint32_t *y, uint32_t cosine, uint32_t sine) {
    float a[2], b[2], c[2], s[2];
    T_unpack(*x, a);
    T_unpack(*y, b);
    T_unpack(cosine, c);
    T_unpack(sine, s);
    K_UNROLL for (int32_t i = 0; i < 2; i++) {
        r_turn_numbers(&a[i], &b[i], c[i], s[i], 1);
    }
    *x = T_repack(a);
    *y = T_repack(b);
}

/* Cosines and sines that go with a lane's pieces of its query, and with its part of a key. */
enum { PAIRS = KEY_PIECES / 2 };
typedef struct decode_angles {
    decode_pack of_q[2][PAIRS];
    uint32_t of_k[2];
} decode_angles;

K_FN void decode_load_angles(const k_fresh *fresh, int64_t angle, const decode_source *from,
                             decode_angles *out) {
    const int32_t over = (int32_t)threadIdx.x % LANES / HALF_WORDS * HALF_WORDS;
    const T *angles[2] = {(const T *)fresh->cosine + angle, (const T *)fresh->sine + angle};
    K_UNROLL for (int32_t i = 0; i < 2; i++) {
        K_UNROLL for (int32_t c = 0; c < PAIRS; c++) {
            out->of_q[i][c] = decode_take(angles[i] + (c * 4 + from->t) * A_PIECE, 1);
        }
        out->of_k[i] = *(decode_words(angles[i]) - over);
    }
}

K_FN void decode_turn(const decode_angles *by, decode_pack *q, uint32_t *k) {
    K_UNROLL for (int32_t i = 0; i < PAIRS * 4; i++) {
        const int32_t c = i / 4, w = i % 4;
        decode_turn_words(&q[c].word[w], &q[c + PAIRS].word[w], by->of_q[0][c].word[w],
                          by->of_q[1][c].word[w]);
    }
    decode_turn_words(&k[0], &k[1], by->of_k[0], by->of_k[1]);
}

/* Key and values where the warp finds them, or in the caches. */
K_FN void decode_put_token(const decode_asked *asked, void *key, void *values) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    uint32_t *k = (uint32_t *)key + lane, *v = (uint32_t *)values + lane;
    if (lane < HALF_WORDS) {
        k[0] = asked->k[0];
        k[HALF_WORDS] = asked->k[1];
    }
    K_UNROLL for (int32_t i = 0; i < VALUE_WORDS; i++) {
        v[i * LANES] = asked->v[i];
    }
}

/* Norms and rotates query and key, and puts what is new to where the warp finds it, and one of the
 * warps that share a key head also into the caches: others may read that row meanwhile, and do not
 * use what they get. Without angles nothing is rotated; that this is asked keeps what has to wait
 * for the length behind all that the warp loads before. */
K_FN decode_own decode_meet_token(const mp_attention_args *args, const k_fresh *fresh,
                                  const decode *at, const decode_source *from, decode_given given,
                                  decode_asked *asked, decode_pack *q, decode_pack *room) {
    const decode_token token = decode_token_of(args, fresh, at, given);
    const int32_t is_turned = fresh->cosine != 0;
    decode_angles angles;
    decode_own own;
    if (is_turned) {
        decode_load_angles(fresh, token.angle, from, &angles);
    }
    if (fresh->scale[0] != 0) {
        decode_norm(fresh, from, q, asked->k);
    }
    if (is_turned) {
        decode_turn(&angles, q, asked->k);
    }
    own.row = (int32_t)token.row;
    own.k = room;
    own.v = room + PIECES;
    decode_put_token(asked, own.k, own.v);
    if (at->split + at->row_first + (int32_t)threadIdx.x / LANES == 0) {
        decode_put_token(asked, token.key, token.value);
    }
    __syncwarp();
    return own;
}

/* Whether a tile has the new token: it is so for all lanes of a warp. */
K_FN int32_t decode_has(const decode_own *own, int32_t key) {
    return (uint32_t)(own->row - key) < KEYS;
}

/* Puts it into a tile of keys, or of values. */
K_FN void decode_mend_keys(const decode_source *from, int32_t key, const decode_own *own,
                           decode_keys *k) {
    K_UNROLL for (int32_t s = 0; s < SIDES; s++) {
        if (key + s * 8 + from->g == own->row) {
            K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
                k->of[s][c] = own->k[c * 4 + from->t];
            }
        }
    }
}

K_FN void decode_mend_values(const decode_source *from, int32_t key, const decode_own *own,
                             decode_values *v) {
    K_UNROLL for (int32_t i = 0; i < SIDES * 2; i++) {
        if (key + i / 2 * 8 + from->t * 2 + i % 2 == own->row) {
            K_UNROLL for (int32_t m = 0; m < VALUE_PIECES; m++) {
                v->of[i / 2][i % 2][m] = own->v[m * 8 + from->g];
            }
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
                decode_product(score[s], a, &k->of[s][c].word[h]);
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
            score[s][e] = k_exp2(score[s][e] - base);
            sum += score[s][e];
        }
    }
    const float shrink = k_exp2(state->top - base);
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
        K_UNROLL for (int32_t w = 0; w < VALUE_PIECES * 4; w++) {
            uint32_t *word = &v->of[i / 2][i % 2][w / 4].word[w % 4];
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
                const uint32_t x[4] = {v->of[s][0][m].word[j], v->of[s][1][m].word[j],
                                       v->of[s + 1][0][m].word[j], v->of[s + 1][1][m].word[j]};
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
 * a maximum in steps of a power of two and a sum of weights. */
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
            const float share = first + i < all->count ? k_exp2(state[n * STATE] - base) : 0;
            found[1] += share * state[n * STATE + 1];
            K_UNROLL for (int32_t e = 0; e < FOUR; e++) {
                sum[e] += share * values[e];
            }
        }
    }
}

/* To the block that adds up the blocks' sums, and what these are relative to to all of them. */
K_FN void decode_send(const decode_found *to, int32_t log, int32_t r, int32_t four,
                      const float *found, const float *sum) {
    float *values = to->values + to->rank * to->pitch + (four >> log) * FOUR;
    float *state = to->state + to->rank * STATE + r * 2;
    k_cluster_store_four(values, four & (to->count - 1), sum);
    /* the row's first lanes have a block each */
    K_ONE_COPY for (int32_t b = four - r * FOURS; b < to->count; b += FOURS) {
        k_cluster_store(state, b, found[0]);
        k_cluster_store(state + 1, b, found[1]);
    }
}

/* What the warps have found is there; each lane adds up some of it, and then of what the blocks
 * have, by one text. */
K_FN void decode_meet(const mp_attention_args *args, const decode *at, decode_found all) {
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
                found[0] *= DECODE_LN_2;
                decode_store(args, at, r, (four - r * FOURS) * FOUR, found, sum);
            } else {
                decode_send(&blocks, args->meet_log, r, four, found, sum);
            }
        }
        if (is_last) {
            return;
        }
        k_cluster_arrive();
        k_cluster_wait();
        all = blocks;
        log = args->meet_log;
        mine = blocks.rank;
    }
}

/* ---- a block ---- */

K_FN decode_source decode_source_of(const mp_attention_args *args, const decode *at) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    decode_source from;
    from.g = lane / 4;
    from.t = lane % 4;
    from.k = (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1] +
             from.t * A_PIECE;
    from.v = (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1] +
             from.g * A_PIECE;
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
                     const decode_source *from, decode_pack *room, decode_state *state) {
    const k_score_rule *rule = &args->rule;
    const float scale = (float)rule->scale * DECODE_LOG2_E;
    const int32_t step = (int32_t)(blockDim.x / LANES) * (int32_t)args->splits * KEYS;
    const decode_line line = decode_line_at(args, at, from->g);
    const T *query = decode_query(args, at, line) + from->t * A_PIECE;
    int32_t key = decode_first_key(args, at);
    const int64_t mask_row = a_mask_row(rule, at->entry, line.head, line.row);
    decode_keys k;
    decode_values v;
    decode_mask mask;
    decode_pack q[KEY_PIECES];
    decode_given given;
    decode_asked asked;
    decode_own own;
    if (K_FRESH) {
        given = decode_given_at(args, fresh, at->entry);
    }
    K_UNROLL for (int32_t c = 0; c < KEY_PIECES; c++) {
        const int32_t is_there = c * 4 + 3 < PIECES || c * 4 + from->t < PIECES;
        q[c] = decode_take(query + c * 4 * A_PIECE, is_there && from->g < at->rows);
    }
    if (K_FRESH) {
        decode_ask(fresh, at, &asked);
    }
    decode_load_keys(from, key, &k);
    if (EARLY) {
        decode_load_values(from, key, &v);
    }
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
    const a_span all = {a_visible(rule, length, 0).from,
                        a_visible(rule, length, rule->rows - 1).to};
    K_ONE_COPY do {
        const int32_t next = key + step, is_more = next < all.to;
        const int32_t is_own = K_FRESH && decode_has(&own, key);
        float score[SIDES][4];
        if (is_own) {
            decode_mend_keys(from, key, &own, &k);
        }
        decode_scores(q, &k, score);
        if (!EARLY) {
            decode_load_values(from, key, &v);
        } else if (is_more) {
            decode_load_keys(from, next, &k);
        }
        decode_weights(scale, from, key, span, &mask, score, state);
        if (is_more) {
            decode_load_mask(rule, mask_row, from, next, &mask);
        }
        if (is_own) {
            decode_mend_values(from, key, &own, &v);
        }
        decode_clear_values(from, key, all, &v);
        decode_add(&v, score, state);
        if (is_more && EARLY) {
            decode_load_values(from, next, &v);
        } else if (is_more) {
            decode_load_keys(from, next, &k);
        }
        key = next;
    }
    while (key < all.to)
        ;
    if (K_FRESH) {
        __syncwarp(); /* all lanes have read what is there */
    }
}

K_FN void decode_block(const mp_attention_args *args, const k_fresh *fresh, const decode *at,
                       float *shared) {
    const decode_source from = decode_source_of(args, at);
    const decode_found warps = decode_of_warps(at, shared);
    decode_state state;
    if (args->meet_log > 0) {
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
    decode_run(args, fresh, at, &from, (decode_pack *)(void *)room, &state);
    state.total += __shfl_xor_sync(DECODE_ALL, state.total, 1);
    state.total += __shfl_xor_sync(DECODE_ALL, state.total, 2);
    decode_leave(at, &from, &warps, &state);
    __syncthreads();
    if (args->meet_log > 0) {
        k_cluster_wait();
    }
    decode_meet(args, at, warps);
}

#else

/* The new token's key and values, its row in the caches, and a query of it. */
typedef struct decode_own {
    T q[HEAD], k[HEAD];
    const T *v;
    int64_t row;
} decode_own;

/* A query or a key, normed by `scale` if there is one, and rotated. */
K_FN void decode_turn(const k_fresh *fresh, const T *scale, int64_t angle, const T *x, T *out) {
    K_SUM squares = 0;
    K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
        out[d] = x[d];
        squares += (K_SUM)T_load(x[d]) * (K_SUM)T_load(x[d]);
    }
    const K_SUM inverse = decode_inverse(fresh, squares);
    K_ONE_COPY for (int32_t d = 0; scale != 0 && d < HEAD; d++) {
        out[d] = T_store((float)((K_SUM)T_load(x[d]) * inverse) * T_load(scale[d]));
    }
    K_ONE_COPY for (int32_t i = 0; fresh->cosine != 0 && i < HALF; i++) {
        const T cosine = ((const T *)fresh->cosine)[angle + i];
        const T sine = ((const T *)fresh->sine)[angle + i];
        r_rotate(&out[i], &out[i + HALF], cosine, sine, 1);
    }
}

K_FN void decode_own_of(const k_fresh *fresh, const decode *at, const decode_token *token,
                        const T *q, decode_own *own) {
    const T *const *scale = (const T *const *)fresh->scale;
    decode_turn(fresh, scale[0], token->angle, q, own->q);
    decode_turn(fresh, scale[1], token->angle, decode_new_key(fresh, at), own->k);
    own->v = decode_new_values(fresh, at);
    own->row = token->row;
}

/* Nobody reads the rows there. */
K_FN void decode_append(const decode_token *token, const decode_own *own) {
    K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
        token->key[d] = own->k[d];
        token->value[d] = own->v[d];
    }
}

K_FN float decode_dot(const T *a, const T *b) {
    float dot = 0;
    K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
        dot += T_load(a[d]) * T_load(b[d]);
    }
    return dot;
}

/* A row and the block's share of the keys. */
K_FN void decode_row(const mp_attention_args *args, const k_fresh *fresh, const decode *at,
                     int32_t r) {
    const k_score_rule *rule = &args->rule;
    const decode_line line = decode_line_at(args, at, r);
    const a_span span = a_visible(rule, a_length(rule, at->entry), line.row);
    const T *q = decode_query(args, at, line);
    const T *k =
        (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1];
    const T *v =
        (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1];
    decode_own own;
    own.row = -1; /* none */
    own.v = v;
    if (K_FRESH) {
        const decode_given given = decode_given_at(args, fresh, at->entry);
        const decode_token token = decode_token_of(args, fresh, at, given);
        decode_own_of(fresh, at, &token, q, &own);
        q = own.q;
        if (at->split + at->row_first + r == 0) {
            decode_append(&token, &own);
        }
    }
    const int64_t mask_row = a_mask_row(rule, at->entry, line.head, line.row);
    float top = A_NONE, total = 0, sum[HEAD] = {0};
    K_ONE_COPY for (int64_t key = span.from; key < span.to; key++) {
        if (key / KEYS % args->splits != at->split) {
            continue;
        }
        const int32_t is_own = key == own.row;
        const T *keys = is_own ? own.k : k + key * args->k_stride[2];
        const T *values = is_own ? own.v : v + key * args->v_stride[2];
        const float plain = decode_dot(q, keys) * (float)rule->scale;
        const float score = K_MASKED ? a_masked(rule, mask_row, key, plain) : plain;
        const float before = top;
        top = score > top ? score : top;
        const float shrink = total == 0 ? 0 : expf(before - top), weight = a_weight(score, top);
        total = total * shrink + weight;
        K_ONE_COPY for (int32_t d = 0; d < HEAD; d++) {
            sum[d] = sum[d] * shrink + weight * T_load(values[d]);
        }
    }
    const float found[2] = {top, total};
    decode_store(args, at, r, 0, found, sum);
}

K_FN void decode_block(const mp_attention_args *args, const k_fresh *fresh, const decode *at,
                       float *shared) {
    (void)shared;
    K_BLOCK_LOOP(r, at->rows) {
        decode_row(args, fresh, at, (int32_t)r);
    }
}

#endif

#if K_FRESH
K_BLOCK_KERNEL_UP_TO(K_DECODE_WARPS * 32, mp_fresh_args, args) {
    K_SHARED(float, shared);
    const decode at = decode_place(&args.attention, blockIdx.x);
    decode_block(&args.attention, &args.fresh, &at, shared);
}
#else
K_BLOCK_KERNEL_UP_TO(K_DECODE_WARPS * 32, mp_attention_args, args) {
    K_SHARED(float, shared);
    const decode at = decode_place(&args, blockIdx.x);
    decode_block(&args, 0, &at, shared);
}
#endif
