/* delta_token.cu - linear attention as delta.cu has it for about one token of each entry, where
 * states are floats, a column is ROWS neighbours, and there are multiples of COLUMNS of them: bound
 * by reading a state and writing it.
 *
 * WIDTH lanes share a column, each with KEEP of its rows in registers, as pieces of 16 bytes of
 * which a lane has every WIDTH-th. A lane has so many rows of SETS columns: all are on their way
 * before anything is known of the tokens. A token's key and query are read by all lanes, who have
 * the same rows of them, so that nothing goes through shared memory.
 *
 * What a query q finds in the new state S d + k c, where d is the decay and c the change, is
 * (q S) d + (q k) c: both sums over the old state are found at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/delta.h"

#if !K_HOST

#include "kernel/core/late.h"
#include "kernel/core/word.h"

enum {
    WIDTH = K_DELTA_WIDTH,
    KEEP = K_DELTA_KEEP,
    ROWS = WIDTH * KEEP,
    COLUMNS = K_DELTA_TOKEN_COLUMNS,
    AT_ONCE = K_DELTA_LANES / WIDTH, /* columns of a block's lanes */
    SETS = COLUMNS / AT_ONCE,
    PIECE = 4, /* elements */
    PIECES = KEEP / PIECE,
    WORDS = PIECE / K_WORD, /* of a piece of a key or a query */
};

typedef struct K_ALIGN(sizeof(T) * PIECE) o_words {
    uint32_t at[WORDS];
} o_words;

typedef struct K_ALIGN(16) o_state {
    float at[PIECE];
} o_state;

/* A decay or a beta as it comes from memory: to convert it would be to wait. */
typedef struct o_given {
    T narrow;
    float wide;
} o_given;

/* What a block knows of its head. */
typedef struct o_head {
    uint32_t head, key, query; /* and those of its keys and queries */
    int32_t column;            /* the lane's first one */
    float rate, bias;
} o_head;

K_FN o_given o_ask(const mp_delta_args *args, const void *gates, int64_t at) {
    o_given given = {T_store(0.0f), 1.0f};
    if (gates != 0 && args->gates_wide) {
        given.wide = ((const float *)gates)[at];
    } else if (gates != 0) {
        given.narrow = ((const T *)gates)[at];
    }
    return given;
}

K_FN float o_gate(const mp_delta_args *args, const void *gates, o_given given) {
    return gates == 0 || args->gates_wide ? given.wide : T_load(given.narrow);
}

/* Sums over the lanes of a column. */
K_FN void o_meet(float *sums, int32_t count) {
    K_UNROLL
    for (int32_t half = WIDTH / 2; half > 0; half /= 2) {
        K_UNROLL
        for (int32_t i = 0; i < count; i++) {
            sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], half);
        }
    }
}

/* This lane's rows of a key or a query. */
K_FN void o_take(const T *from, o_words *words) {
    K_UNROLL
    for (int32_t i = 0; i < PIECES; i++) {
        words[i] = ((const o_words *)(const void *)from)[i * WIDTH + threadIdx.x % WIDTH];
    }
}

K_FN void o_unpack(const o_words *words, float *out) {
    K_UNROLL
    for (int32_t i = 0; i < PIECES * WORDS; i++) {
        T_unpack(words[i / WORDS].at[i % WORDS], out + i * K_WORD);
    }
}

K_FN float o_dot(const float *a, const float *b) {
    float sum[2] = {0, 0};
    K_UNROLL
    for (int32_t e = 0; e < KEEP; e++) {
        sum[e % 2] = fmaf(a[e], b[e], sum[e % 2]);
    }
    return sum[0] + sum[1];
}

K_FN void o_token(const mp_delta_args *args, const o_head *h, int64_t token, float (*state)[KEEP]) {
    const T *v = (const T *)args->v + token * args->v_pitch + h->head * args->value + h->column;
    T *out = (T *)args->out + token * args->out_pitch + h->head * args->value + h->column;
    const int64_t line = token * args->heads + h->head;
    o_words words[2][PIECES];
    T value[SETS];
    const o_given decay_given = o_ask(args, args->decay, line);
    const o_given beta_given = o_ask(args, args->beta, args->beta_heads == 1 ? token : line);
    o_take((const T *)args->k + token * args->k_pitch + h->key * ROWS, words[0]);
    o_take((const T *)args->q + token * args->q_pitch + h->query * ROWS, words[1]);
    K_UNROLL
    for (int32_t s = 0; s < SETS; s++) {
        value[s] = v[s * AT_ONCE];
    }
    float key[KEEP], query[KEEP], held[2 * SETS];
    o_unpack(words[0], key);
    o_unpack(words[1], query);
    float decay = 1;
    if (args->decays) {
        decay = d_decay_by(args, h->rate, h->bias, o_gate(args, args->decay, decay_given));
    }
    const float beta = d_beta(args, o_gate(args, args->beta, beta_given));
    float of_token[3] = {o_dot(query, key), o_dot(key, key), o_dot(query, query)};
    K_UNROLL
    for (int32_t s = 0; s < SETS; s++) {
        held[s] = o_dot(state[s], key);
        held[SETS + s] = o_dot(state[s], query);
    }
    o_meet(of_token, 3);
    o_meet(held, 2 * SETS);
    const float by_key = args->normed ? 1.0f / sqrtf(of_token[1] + 1e-12f) : 1.0f;
    const float by_query = args->normed ? args->scale / sqrtf(of_token[2] + 1e-12f) : args->scale;
    K_UNROLL
    for (int32_t s = 0; s < SETS; s++) {
        float change = T_load(value[s]);
        if (args->retrieves) {
            change = beta * (change - decay * (by_key * held[s]));
        }
        change *= by_key;
        K_UNROLL
        for (int32_t e = 0; e < KEEP; e++) {
            state[s][e] = fmaf(key[e], change, state[s][e] * decay);
        }
        if (threadIdx.x % WIDTH == 0) {
            const float found = decay * held[SETS + s] + of_token[0] * change;
            out[s * AT_ONCE] = T_store(found * by_query);
        }
    }
}

/* Unit `unit` of all: COLUMNS of a state. They lie one behind the other. */
K_FN void o_run(const mp_delta_args *args, uint32_t unit) {
    const int32_t at = (int32_t)threadIdx.x / WIDTH;
    const int64_t place =
        (int64_t)unit * (COLUMNS * ROWS) + at * ROWS + (int32_t)(threadIdx.x % WIDTH) * PIECE;
    uint32_t past[SETS * PIECES][PIECE];
    const float *from = (const float *)args->past + place;
    K_UNROLL
    for (int32_t i = 0; i < SETS * PIECES; i++) {
        const int32_t step = i / PIECES * (AT_ONCE * ROWS) + i % PIECES * (WIDTH * PIECE);
        k_fetch(from + step, args->past != 0, past[i]);
    }
    const uint32_t heads = (uint32_t)args->heads, parts = (uint32_t)args->value / COLUMNS;
    const uint32_t line = unit / parts, entry = line / heads;
    o_head h;
    h.head = line - entry * heads;
    h.column = (int32_t)(unit - line * parts) * COLUMNS + at;
    h.rate = args->gate_rates ? args->log_rate[h.head] : 0.0f;
    h.bias = args->gate_rates ? args->bias[h.head] : 0.0f;
    const k_tokens tokens = k_tokens_of(args->starts, entry, args->rows, args->tokens);
    h.key = h.head / (heads / (uint32_t)args->k_heads);
    h.query = args->q_heads >= args->heads ? h.head : h.head * (uint32_t)args->q_heads / heads;
    float state[SETS][KEEP];
    K_UNROLL
    for (int32_t i = 0; i < SETS * KEEP; i++) {
        state[i / KEEP][i % KEEP] = k_float_of_bits(past[i / PIECE][i % PIECE]);
    }
    K_ONE_COPY
    for (int64_t t = 0; t < tokens.count; t++) {
        o_token(args, &h, tokens.first + t, state);
    }
    if (args->present == 0) {
        return;
    }
    float *to = (float *)args->present + place;
    K_UNROLL
    for (int32_t i = 0; i < SETS * PIECES; i++) {
        const int32_t step = i / PIECES * (AT_ONCE * ROWS) + i % PIECES * (WIDTH * PIECE);
        *(o_state *)(void *)(to + step) =
            *(const o_state *)(const void *)(state[i / PIECES] + i % PIECES * PIECE);
    }
}

#endif

K_BLOCK_KERNEL_WITHIN(128, K_DELTA_LANES, mp_delta_args, args) {
#if !K_HOST
    const uint32_t parts = (uint32_t)args.value / K_DELTA_TOKEN_COLUMNS;
    const uint32_t units = (uint32_t)args.batch * (uint32_t)args.heads * parts;
    for (uint32_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        o_run(&args, unit);
    }
#else
    (void)args;
#endif
}
