/* delta.cu - linear attention: a matrix for each head takes up a key and a value at each token and
 * answers with what a query finds in it.
 *
 * Columns of the matrix do not depend on each other. Some lanes share one and keep it in registers
 * over all tokens; a block has columns of one head and brings its tokens, a chunk at a time, to
 * shared memory, where each has
 *
 *     key | queries | decay of each row, or of all | beta | values of the block's columns
 *
 * and vectors are filled up with zeros to what the lanes keep.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/delta.h"

#if K_HOST /* one lane keeps a whole column */
enum { KEEP = K_DELTA_SIZE_MAX };
#else
enum { KEEP = K_DELTA_KEEP };
#endif

/* Elements of a column that this lane has. */
#define D_LOOP(e, size) K_UNROLL for (int32_t e = 0; e < KEEP && (!K_HOST || e < (size)); e++)

typedef struct d_parts {
    float *key, *query, *decay, *beta, *value;
} d_parts;

/* Of a token in shared memory. */
K_FN int32_t d_pitch(const mp_delta_args *args, const d_place *p) {
    return args->padded * (1 + args->queries) + (args->decays == 2 ? args->padded : 1) + 1 +
           p->columns;
}

K_FN d_parts d_parts_of(const mp_delta_args *args, float *shared, const d_place *p, int32_t t) {
    d_parts s;
    s.key = shared + (int64_t)t * d_pitch(args, p);
    s.query = s.key + args->padded;
    s.decay = s.query + (int64_t)args->queries * args->padded;
    s.beta = s.decay + (args->decays == 2 ? args->padded : 1);
    s.value = s.beta + 1;
    return s;
}

K_FN float d_given_decay(const mp_delta_args *args, const d_place *p, int64_t at) {
    return d_decay(args, p, d_gate(args, args->decay, at));
}

/* Tokens [from, from + count) of the entry. */
K_FN void d_bring(const mp_delta_args *args, const d_place *p, float *shared, int64_t from,
                  int32_t count) {
    const int32_t size = args->size, padded = args->padded, pitch = d_pitch(args, p);
    K_BLOCK_LOOP(i, (int64_t)count * pitch) {
        const int32_t t = (int32_t)i / pitch, e = (int32_t)i - t * pitch;
        const int64_t token = p->first + from + t, line = token * args->heads + p->head;
        const int32_t vectors = padded * (1 + args->queries);
        const int32_t decays = args->decays == 2 ? padded : 1;
        const int32_t g = e / padded - 1, within = e % padded, gate = e - vectors;
        float value = 0;
        if (e < padded) {
            const T *k = (const T *)args->k + token * args->k_pitch + p->key_head * size;
            value = within < size ? T_load(k[within]) : 0.0f;
        } else if (e < vectors) {
            const T *q =
                (const T *)args->q + token * args->q_pitch + d_query_head(args, p, g) * size;
            value = within < size ? T_load(q[within]) : 0.0f;
        } else if (gate < decays) {
            if (args->decays == 2) {
                value = gate < size ? d_given_decay(args, p, line * size + gate) : 0.0f;
            } else {
                value = args->decays == 1 ? d_given_decay(args, p, line) : 1.0f;
            }
        } else if (gate == decays) {
            const int64_t at = args->beta_heads == 1 ? token : line;
            value = d_beta(args, args->beta ? d_gate(args, args->beta, at) : 1.0f);
        } else {
            const int64_t column = p->column + (gate - decays - 1);
            const T *v = (const T *)args->v + token * args->v_pitch + p->head * args->value;
            value = column < args->value ? T_load(v[column]) : 0.0f;
        }
        shared[i] = value;
    }
}

/* Keys and queries brought to length 1, a vector for each group of lanes. All groups make as many
 * rounds. */
K_FN void d_norm(const mp_delta_args *args, const d_place *p, float *shared, int32_t count) {
    const int32_t vectors = count * (1 + args->queries);
    for (int32_t base = 0; base < vectors; base += p->columns) {
        const int32_t n = base + p->at, t = n / (1 + args->queries);
        float *x = shared + (int64_t)t * d_pitch(args, p) +
                   (int64_t)(n % (1 + args->queries)) * args->padded;
        float sum = 0;
        D_LOOP(e, args->size) {
            const float one = n < vectors ? x[e * p->width + p->lane] : 0.0f;
            sum += one * one;
        }
        const float inverse = 1.0f / sqrtf(d_meet(sum, p->width) + 1e-12f);
        D_LOOP(e, args->size) {
            if (n < vectors) {
                x[e * p->width + p->lane] *= inverse;
            }
        }
    }
}

K_FN void d_put_state(const mp_delta_args *args, const d_place *p, int64_t window,
                      const float *state) {
    U *to = (U *)args->present + d_state_at(args, p, window);
    D_LOOP(e, args->size) {
        const int32_t row = e * p->width + p->lane;
        if (row < args->size && p->column + p->at < args->value) {
            to[row * args->row_step] = U_store(state ? state[e] : 0.0f);
        }
    }
}

/* The first tokens as they change the state: all decays, then all keys, then all deltas. */
K_FN void d_capture(const mp_delta_args *args, const d_place *p, const d_parts *s, int64_t t,
                    float delta) {
    const int64_t size = args->size, value = args->value, column = p->column + p->at;
    const int64_t keys = args->capacity * args->heads;
    const int64_t deltas = keys + args->capacity * args->k_heads * size;
    float *to = args->update + p->entry * (deltas + args->capacity * args->heads * value);
    if (p->lane == 0 && column < value) {
        to[deltas + (t * args->heads + p->head) * value + column] = delta;
    }
    if (p->column > 0 || p->at > 0) {
        return;
    }
    if (p->lane == 0) {
        to[t * args->heads + p->head] = s->decay[0];
    }
    if (p->head % (args->heads / args->k_heads) == 0) {
        D_LOOP(e, args->size) {
            const int32_t row = e * p->width + p->lane;
            if (row < args->size) {
                to[keys + (t * args->k_heads + p->key_head) * size + row] = s->key[row];
            }
        }
    }
}

/* One token of one column. */
K_FN float d_step(const mp_delta_args *args, const d_place *p, const d_parts *s, float *state) {
    float held = 0;
    D_LOOP(e, args->size) {
        const int32_t row = e * p->width + p->lane;
        if (args->decays) {
            state[e] *= s->decay[args->decays == 2 ? row : 0];
        }
        held += state[e] * s->key[row];
    }
    float delta = s->value[p->at];
    if (args->retrieves) {
        delta = s->beta[0] * (delta - d_meet(held, p->width));
    }
    D_LOOP(e, args->size) {
        state[e] += s->key[e * p->width + p->lane] * delta;
    }
    return delta;
}

K_FN void d_answer(const mp_delta_args *args, const d_place *p, const d_parts *s, int64_t token,
                   const float *state) {
    for (int32_t g = 0; g < args->queries; g++) {
        const float *query = s->query + (int64_t)g * args->padded;
        float sum = 0;
        D_LOOP(e, args->size) {
            sum += state[e] * query[e * p->width + p->lane];
        }
        sum = d_meet(sum, p->width);
        const int64_t column = p->column + p->at;
        if (p->lane == 0 && column < args->value) {
            const int64_t head =
                args->q_heads >= args->heads ? p->head * args->queries + g : p->head;
            ((T *)args->out)[token * args->out_pitch + head * args->value + column] =
                T_store(sum * args->scale);
        }
    }
}

K_FN void d_start(const mp_delta_args *args, const d_place *p, float *state) {
    const int64_t last = args->windows > 0 ? args->windows - 1 : 0;
    const U *from = (const U *)args->past + d_state_at(args, p, last);
    D_LOOP(e, args->size) {
        const int32_t row = e * p->width + p->lane;
        const int there = args->past && row < args->size && p->column + p->at < args->value;
        state[e] = there ? U_load(from[row * args->row_step]) : 0.0f;
    }
}

K_FN void d_column(const mp_delta_args *args, const d_place *p, float *shared) {
    const int64_t windows = args->windows > 0 ? args->windows : 1, before = p->count - windows;
    float state[KEEP];
    d_start(args, p, state);
    for (int64_t from = 0; from < p->count; from += args->chunk) {
        const int64_t left = p->count - from;
        const int32_t count = left < args->chunk ? (int32_t)left : args->chunk;
        d_bring(args, p, shared, from, count);
        __syncthreads();
        if (args->normed) {
            d_norm(args, p, shared, count);
            __syncthreads();
        }
        K_ONE_COPY
        for (int32_t i = 0; i < count; i++) {
            const int64_t t = from + i;
            const d_parts s = d_parts_of(args, shared, p, i);
            const float delta = d_step(args, p, &s, state);
            d_answer(args, p, &s, p->first + t, state);
            if (t < p->captured) {
                d_capture(args, p, &s, t, delta);
            }
            if (args->present && t >= before && t + 1 < p->count) {
                d_put_state(args, p, t - before, state);
            }
        }
        __syncthreads();
    }
    for (int64_t w = 0; args->present && w < windows - 1 && w < -before; w++) {
        d_put_state(args, p, w, 0); /* of no token of this run */
    }
    if (args->present) {
        d_put_state(args, p, windows - 1, state);
    }
}

K_BLOCK_KERNEL_UP_TO(K_DELTA_LANES, mp_delta_args, args) {
    K_SHARED(float, shared);
    const int32_t columns = (int32_t)blockDim.x / (K_HOST ? 1 : args.width);
    const int64_t units = args.batch * args.heads * d_blocks(&args, columns);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const d_place p = d_place_of(&args, unit);
        d_column(&args, &p, shared);
    }
}
