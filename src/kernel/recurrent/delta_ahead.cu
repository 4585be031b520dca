/* delta_ahead.cu - linear attention as delta.cu has it, where a token's key, query and values are
 * whole pieces of 16 bytes, and it has one query and one decay: bound by how long a token takes
 * that waits for the one before.
 *
 * Some lanes share a column of the state, each with K_DELTA_KEEP of its rows in registers; of what
 * a group reads a lane has every width-th piece, so that its lanes read different banks. A block
 * has chunks of tokens in shared memory, as they are stored: one is worked on while the next is on
 * its way. Beside each token are its gates: decay, beta, and what its key and its query are
 * multiplied by, which sums of products with them are instead.
 *
 * What the query of a token finds in the state waits for nobody. It is summed over the lanes
 * together with what the next key finds there, which the next token waits for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/delta.h"

#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#include "kernel/core/word.h"

enum {
    H_WARP = 32,
    H_KEEP = K_DELTA_KEEP,
    H_PACK = 16 / sizeof(T), /* elements of a piece */
    H_WORDS = 4,
    H_CHAINS = 4, /* sums that do not wait for one another */
    H_TOKENS = K_DELTA_AHEAD,
};

enum { H_DECAY, H_BETA, H_KEY, H_QUERY, H_GATES };

typedef struct K_ALIGN(16) h_gates {
    float at[H_GATES];
} h_gates;

typedef struct K_ALIGN(16) h_words {
    uint32_t at[H_WORDS];
} h_words;

/* A block's share of shared memory, twice. */
typedef struct h_chunk {
    h_gates *gates;
    uint8_t *tokens;
} h_chunk;

/* What is given of a decay or beta, as it comes from memory: to convert it would be to wait. */
typedef struct h_given {
    T narrow;
    float wide;
} h_given;

/* What a lane has of its column from token to token. */
typedef struct h_column {
    float state[H_KEEP];
    float query[H_KEEP]; /* the last one's, ... */
    float rate;          /* ... what its sum is multiplied by, ... */
    T *to;               /* ... and where the answer goes; 0: nowhere */
    T *next;             /* where the next one's goes */
    int64_t step;
} h_column;

K_FN int32_t h_pitch(const mp_delta_args *args, const d_place *p) {
    return (2 * args->size + p->columns) * (int32_t)sizeof(T);
}

K_FN h_chunk h_chunk_of(const mp_delta_args *args, const d_place *p, uint8_t *shared, int32_t i) {
    const h_chunk chunk = {(h_gates *)(void *)shared + i * H_TOKENS,
                           shared + 2 * H_TOKENS * sizeof(h_gates) +
                               i * H_TOKENS * h_pitch(args, p)};
    return chunk;
}

/* Row `e` of a column that a lane keeps. */
K_FN int32_t h_row(const d_place *p, int32_t e) {
    return (e / H_PACK * p->width + p->lane) * H_PACK + e % H_PACK;
}

/* ---- into shared memory ---- */

/* Tokens [from, from + count) are on their way: a warp takes one at a time. */
K_FN void h_fill(const mp_delta_args *args, const d_place *p, const h_chunk *chunk, int64_t from,
                 int32_t count) {
    const int32_t lane = (int32_t)threadIdx.x % H_WARP, warps = (int32_t)blockDim.x / H_WARP;
    const int32_t row = args->size / H_PACK, values = 2 * row, end = values + p->columns / H_PACK;
    const int64_t query = d_query_head(args, p, 0) * args->size;
    K_ONE_COPY
    for (int32_t t = (int32_t)threadIdx.x / H_WARP; t < count; t += warps) {
        const int64_t token = p->first + from + t;
        const T *k = (const T *)args->k + token * args->k_pitch + p->key_head * args->size;
        const T *q = (const T *)args->q + token * args->q_pitch + query;
        const T *v = (const T *)args->v + token * args->v_pitch + p->head * args->value;
        uint8_t *to = chunk->tokens + t * h_pitch(args, p);
        K_ONE_COPY
        for (int32_t i = lane; i < end; i += H_WARP) {
            const int64_t column = p->column + (i - values) * H_PACK;
            const int is = i < values || column < args->value;
            const T *source = i < row      ? k + i * H_PACK
                              : i < values ? q + (i - row) * H_PACK
                                           : v + (is ? column : 0);
            k_copy_begin(to + i * 16, source, is ? 16 : 0);
        }
    }
}

/* Which gate of which token of a chunk is this lane's. */
K_FN int32_t h_gate_of(int32_t *token) {
    *token = (int32_t)threadIdx.x % H_TOKENS;
    return (int32_t)threadIdx.x / H_TOKENS;
}

K_FN h_given h_ask(const mp_delta_args *args, const d_place *p, int64_t from, int32_t count) {
    int32_t t = 0;
    const int32_t gate = h_gate_of(&t);
    const void *gates = gate == H_DECAY ? args->decay : args->beta;
    h_given given = {T_store(0.0f), 0.0f};
    if (gate <= H_BETA && gates != 0 && t < count) {
        const int64_t token = p->first + from + t;
        const int one = gate == H_BETA && args->beta_heads == 1;
        const int64_t at = one ? token : token * args->heads + p->head;
        if (args->gates_wide) {
            given.wide = ((const float *)gates)[at];
        } else {
            given.narrow = ((const T *)gates)[at];
        }
    }
    return given;
}

K_FN void h_put_gates(const mp_delta_args *args, const d_place *p, const h_chunk *chunk,
                      h_given given) {
    int32_t t = 0;
    const int32_t gate = h_gate_of(&t);
    const float x = args->gates_wide ? given.wide : T_load(given.narrow);
    float value = 1.0f; /* of the key */
    if (gate >= H_GATES) {
        return;
    }
    if (gate == H_DECAY && args->decays) {
        value = d_decay(args, p, x);
    } else if (gate == H_BETA) {
        value = d_beta(args, args->beta ? x : 1.0f);
    } else if (gate == H_QUERY) {
        value = args->scale;
    }
    chunk->gates[t].at[gate] = value;
}

/* ---- a token ---- */

/* What this lane has of a key or a query. */
K_FN void h_load(const d_place *p, const uint8_t *from, float *out) {
    K_UNROLL
    for (int32_t i = 0; i < H_KEEP / H_PACK; i++) {
        const h_words words =
            *(const h_words *)(const void *)(from + (i * p->width + p->lane) * 16);
        K_UNROLL
        for (int32_t j = 0; j < H_WORDS; j++) {
            T_unpack(words.at[j], out + i * H_PACK + j * K_WORD);
        }
    }
}

K_FN float h_dot(const float *a, const float *b) {
    float sum[H_CHAINS];
    K_UNROLL
    for (int32_t e = 0; e < H_KEEP; e++) {
        sum[e % H_CHAINS] = e < H_CHAINS ? a[e] * b[e] : sum[e % H_CHAINS] + a[e] * b[e];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Both over the lanes of a column. `width` is a constant where this is called, or is not. */
K_FN void h_meet(float *both, int32_t width) {
    K_UNROLL
    for (int32_t half = width / 2; half > 0; half /= 2) {
        const float other[2] = {__shfl_xor_sync(0xffffffffu, both[0], half),
                                __shfl_xor_sync(0xffffffffu, both[1], half)};
        both[0] += other[0];
        both[1] += other[1];
    }
}

/* Keys and queries are brought to length 1, a token for each group of lanes. */
K_FN void h_norm(const mp_delta_args *args, const d_place *p, const h_chunk *chunk, int32_t count) {
    K_ONE_COPY
    for (int32_t first = 0; first < count; first += p->columns) {
        const int32_t t = first + p->at, is = t < count;
        const uint8_t *token = chunk->tokens + (is ? t : 0) * h_pitch(args, p);
        float key[H_KEEP], query[H_KEEP];
        h_load(p, token, key);
        h_load(p, token + args->size * (int32_t)sizeof(T), query);
        float both[2] = {h_dot(key, key), h_dot(query, query)};
        h_meet(both, p->width);
        if (is && p->lane == 0) {
            chunk->gates[t].at[H_KEY] = 1.0f / sqrtf(both[0] + 1e-12f);
            chunk->gates[t].at[H_QUERY] = args->scale / sqrtf(both[1] + 1e-12f);
        }
    }
}

/* Token `t` of a chunk, whose key was loaded before; loads that of token `next`. */
K_FN void h_step(const mp_delta_args *args, const d_place *p, const h_chunk *chunk, int32_t t,
                 int32_t next, const float *key, float *next_key, h_column *c) {
    const int32_t pitch = h_pitch(args, p), size = args->size * (int32_t)sizeof(T);
    const uint8_t *token = chunk->tokens + t * pitch;
    const h_gates gates = chunk->gates[t];
    const T value = ((const T *)(const void *)(token + 2 * size))[p->at];
    float both[2] = {h_dot(c->state, key), h_dot(c->state, c->query)};
    h_load(p, chunk->tokens + next * pitch, next_key);
    h_load(p, token + size, c->query);
    h_meet(both, p->width);
    float change = T_load(value);
    if (args->retrieves) {
        change = gates.at[H_BETA] * (change - gates.at[H_DECAY] * (gates.at[H_KEY] * both[0]));
    }
    change *= gates.at[H_KEY];
    K_UNROLL
    for (int32_t e = 0; e < H_KEEP; e++) {
        c->state[e] = fmaf(key[e], change, c->state[e] * gates.at[H_DECAY]); /* that one before */
    }
    if (c->to != 0) {
        *c->to = T_store(both[1] * c->rate);
    }
    c->rate = gates.at[H_QUERY];
    c->to = c->next;
    c->next += c->step;
}

/* ---- a column ---- */

K_FN void h_start(const mp_delta_args *args, const d_place *p, h_column *c) {
    const U *from = (const U *)args->past + d_state_at(args, p, 0);
    const int there = args->past != 0 && p->column + p->at < args->value;
    K_UNROLL
    for (int32_t e = 0; e < H_KEEP; e++) {
        c->state[e] = there ? U_load(from[h_row(p, e) * args->row_step]) : 0.0f;
        c->query[e] = 0;
    }
    c->rate = 0;
    c->to = 0;
    c->next = 0;
    c->step = 0;
    if (p->lane == 0 && p->column + p->at < args->value) {
        c->next =
            (T *)args->out + p->first * args->out_pitch + p->head * args->value + p->column + p->at;
        c->step = args->out_pitch;
    }
}

K_FN void h_end(const mp_delta_args *args, const d_place *p, h_column *c) {
    float both[2] = {0, h_dot(c->state, c->query)};
    U *to = (U *)args->present + d_state_at(args, p, 0);
    h_meet(both, p->width);
    if (c->to != 0) {
        *c->to = T_store(both[1] * c->rate);
    }
    if (args->present == 0 || p->column + p->at >= args->value) {
        return;
    }
    K_UNROLL
    for (int32_t e = 0; e < H_KEEP; e++) {
        to[h_row(p, e) * args->row_step] = U_store(c->state[e]);
    }
}

/* All of a chunk. `p->width` is a constant where this is called, or is not. */
K_FN void h_tokens(const mp_delta_args *args, const d_place *p, const h_chunk *chunk, int32_t count,
                   h_column *c) {
    float even[H_KEEP], odd[H_KEEP];
    h_load(p, chunk->tokens, even);
    K_ONE_COPY
    for (int32_t t = 0; t < count; t += 2) {
        const int32_t next = t + 1 < count ? t + 1 : t, last = t + 2 < count ? t + 2 : next;
        h_step(args, p, chunk, t, next, even, odd, c);
        if (next > t) { /* the same for all lanes */
            h_step(args, p, chunk, next, last, odd, even, c);
        }
    }
}

K_FN void h_run(const mp_delta_args *args, const d_place *p, uint8_t *shared) {
    h_chunk chunk = h_chunk_of(args, p, shared, 0), other = h_chunk_of(args, p, shared, 1);
    h_column c;
    int32_t count = p->count < H_TOKENS ? (int32_t)p->count : H_TOKENS;
    h_fill(args, p, &chunk, 0, count);
    k_copies_group();
    h_given given = h_ask(args, p, 0, count);
    h_start(args, p, &c);
    K_ONE_COPY
    for (int64_t from = 0; from < p->count; from += H_TOKENS) {
        const int64_t left = p->count - from - H_TOKENS;
        const int32_t more = left < H_TOKENS ? (int32_t)left : H_TOKENS;
        h_put_gates(args, p, &chunk, given);
        K_COPIES_WAIT(0);
        __syncthreads(); /* the chunk is there, and the one before has been read */
        if (more > 0) {
            h_fill(args, p, &other, from + H_TOKENS, more);
            given = h_ask(args, p, from + H_TOKENS, more);
        }
        k_copies_group();
        if (args->normed) {
            h_norm(args, p, &chunk, count);
            __syncthreads();
        }
        if (p->width == K_DELTA_WIDTH) {
            d_place wide = *p;
            wide.width = K_DELTA_WIDTH; /* a constant from here on */
            h_tokens(args, &wide, &chunk, count, &c);
        } else {
            h_tokens(args, p, &chunk, count, &c);
        }
        const h_chunk there = chunk;
        chunk = other;
        other = there;
        count = more;
    }
    h_end(args, p, &c);
}

#endif

K_BLOCK_KERNEL_WITHIN(168, K_DELTA_LANES, mp_delta_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    const int64_t units = args.batch * args.heads * d_blocks(&args, K_DELTA_LANES / args.width);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const d_place p = d_place_of(&args, unit);
        h_run(&args, &p, shared);
        __syncthreads(); /* all have read what the next one writes over */
    }
#else
    (void)args;
#endif
}
