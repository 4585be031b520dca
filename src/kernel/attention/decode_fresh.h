/* decode_fresh.h - the new token of an entry on its way through attention_decode.cu: its query and
 * its key are normed and rotated, and key and value take the place of what the caches have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DECODE_FRESH_H
#define MP_KERNEL_DECODE_FRESH_H

#include "kernel/attention/decode.h"
#include "kernel/attention/rotary.h"
#include "kernel/core/block.h"
#include "kernel/core/word.h"

#if K_HOST
#define DECODE_SQRT sqrt
#else
#define DECODE_SQRT sqrtf
#endif

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

#if K_WARP_MATRIX

static_assert(!K_FRESH || HEAD == 64 || HEAD == 128,
              "half a key is a word of each lane, or of some");

/* The new token of a warp: its row in the caches, and its key, rotated, and its values in shared
 * memory, since few tiles have it. */
typedef struct decode_own {
    int32_t row;
    decode_kept *k, *v;
} decode_own;

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
                                  decode_asked *asked, decode_pack *q, decode_kept *room) {
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

#endif

#endif
