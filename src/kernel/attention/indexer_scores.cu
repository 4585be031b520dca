/* indexer_scores.cu - what keys are worth to tokens. A block takes a token and a tile of keys,
 * which stays in shared memory while the token's heads pass, some at a time; a lane has a key and a
 * share of the heads.
 *
 *     q      [heads_at_once][depth], the size rounded up to 4
 *     k      [tile][depth + 1]
 *     part   [tile * shares]
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/indexer.h"

enum { FOUR = 4, HEADS = K_INDEXER_HEADS };

typedef struct K_ALIGN(16) s_four {
    float of[FOUR];
} s_four;

typedef struct s_tile {
    float *q, *k, *part;
    int64_t token, key_first;
    int32_t depth, keys, shares;
    x_view view;
} s_tile;

K_FN void s_load_keys(const mp_indexer_scores_args *args, const s_tile *t) {
    const T *keys = (const T *)args->keys;
    K_BLOCK_LOOP(i, (int64_t)t->keys * t->depth) {
        const int64_t key = i / t->depth, d = i % t->depth;
        const int64_t row = t->view.entry * args->capacity + t->key_first + key;
        const int seen = d < args->size && t->key_first + key < t->view.keys;
        t->k[key * (t->depth + 1) + d] = seen ? T_load(keys[row * args->size + d]) : 0.0f;
    }
    K_BLOCK_LOOP(i, (int64_t)t->keys * t->shares) {
        t->part[i] = 0;
    }
}

K_FN void s_load_heads(const mp_indexer_scores_args *args, const s_tile *t, int64_t head_first) {
    const float *q = (const float *)args->q + t->token * args->heads * args->size;
    K_BLOCK_LOOP(i, (int64_t)args->heads_at_once * t->depth) {
        const int64_t head = head_first + i / t->depth, d = i % t->depth;
        t->q[i] = head < args->heads && d < args->size ? q[head * args->size + d] : 0.0f;
    }
}

/* Products of a key with some heads. */
K_FN void s_dots(const s_tile *t, const float *k, int64_t head, float *dot) {
    for (int32_t d = 0; d < t->depth; d += FOUR) {
        K_UNROLL for (int32_t n = 0; n < HEADS; n++) {
            const s_four q = *(const s_four *)(const void *)(t->q + (head + n) * t->depth + d);
            K_UNROLL for (int32_t e = 0; e < FOUR; e++) {
                dot[n] += q.of[e] * k[d + e];
            }
        }
    }
}

K_FN void s_score(const mp_indexer_scores_args *args, const s_tile *t, int64_t head_first) {
    const T *weights = args->weights ? (const T *)args->weights + t->token * args->heads : 0;
    K_BLOCK_LOOP(i, (int64_t)t->keys * t->shares) {
        const float *k = t->k + i % t->keys * (t->depth + 1);
        float sum = t->part[i];
        for (int64_t h = i / t->keys * HEADS; h < args->heads_at_once; h += t->shares * HEADS) {
            float dot[HEADS] = {0};
            s_dots(t, k, h, dot);
            K_UNROLL for (int32_t n = 0; n < HEADS; n++) {
                const int64_t head = head_first + h + n;
                if (head < args->heads) {
                    const float weight = weights ? T_load(weights[head]) : 1.0f;
                    sum += (dot[n] > 0 ? dot[n] : 0.0f) * weight;
                }
            }
        }
        t->part[i] = sum;
    }
}

K_BLOCK_KERNEL_UP_TO(K_INDEXER_LANES, mp_indexer_scores_args, args) {
    K_SHARED(float, shared);
    s_tile t;
    t.depth = (args.size + FOUR - 1) / FOUR * FOUR;
    t.keys = args.tile;
    t.shares = K_INDEXER_LANES / args.tile;
    t.q = shared;
    t.k = t.q + (int64_t)args.heads_at_once * t.depth;
    t.part = t.k + (int64_t)t.keys * (t.depth + 1);
    const int64_t tiles = (args.columns + t.keys - 1) / t.keys;
    for (int64_t unit = blockIdx.x; unit < args.at.tokens * tiles; unit += gridDim.x) {
        t.token = unit / tiles;
        t.key_first = unit % tiles * t.keys;
        t.view = x_view_of(&args.at, t.token);
        if (t.key_first < t.view.keys) {
            s_load_keys(&args, &t);
            for (int64_t head = 0; head < args.heads; head += args.heads_at_once) {
                s_load_heads(&args, &t, head);
                __syncthreads();
                s_score(&args, &t, head);
                __syncthreads();
            }
        }
        K_BLOCK_LOOP(key, t.keys) {
            const int64_t column = t.key_first + key;
            float score = -K_INF;
            if (column < t.view.keys) {
                score = 0;
                for (int32_t share = 0; share < t.shares; share++) {
                    score += t.part[(int64_t)share * t.keys + key];
                }
                score *= args.scale;
            }
            if (column < args.columns) {
                ((float *)args.scores)[t.token * args.columns + column] = score;
            }
        }
        __syncthreads();
    }
}
