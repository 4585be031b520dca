/* indexer_args.h - arguments of the kernels that choose which keys tokens attend to.
 *
 * Each `ratio` tokens of an entry become a window and a window one key. A token sees the keys of
 * the windows that end with it or before, scores them, and takes the best. Lengths, positions and
 * what waits come from a model: what does not fit is left out. The packed batch is as in
 * kernel/core/packed_batch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEXER_ARGS_H
#define MP_KERNEL_INDEXER_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_INDEXER_LANES = 128, /* of a block */
    K_INDEXER_WIDTH = 32,  /* lanes that share a head */
    K_INDEXER_HEAD_MAX = 2048,
    K_INDEXER_HEADS = 4 /* that a lane scores at a time */
};

/* What becomes of the tokens of an entry: those that waited, then the new ones. */
typedef struct k_windows {
    int32_t keys;     /* that were there before */
    int32_t waiting;  /* tokens */
    int32_t before;   /* of those, the first ones: they are of the last window that is a key */
    int32_t made;     /* windows */
    int32_t first;    /* token from which on all are kept */
    int32_t left;     /* and how many those are */
    int32_t captured; /* new tokens that the caller wants to know of */
    int32_t refused;  /* the entry stays as it is, and its tokens choose nothing */
} k_windows;

typedef struct k_indexer {
    const int32_t *starts;    /* NULL: each entry has `rows` tokens */
    const int32_t *past;      /* tokens before those; NULL: past_rows */
    const int64_t *positions; /* of tokens, NULL: where they are */
    const int32_t *shown;     /* [entry, total]: how many tokens up to there count; NULL: all */
    const k_windows *windows; /* of each entry; NULL: `same` */
    k_windows same;
    int64_t tokens, batch, rows, past_rows, total;
    int64_t ratio;
} k_indexer;

/* Pairs of a head are turned by their token's position: the first `width` elements, of which one
 * half goes with the other, or neighbours among the last 2 * width. */
typedef struct k_turn {
    const void *cosine, *sine; /* [rows, width], or one such for each entry */
    int64_t rows;              /* a position beyond is taken as the nearest */
    int32_t width, trailing, each, unused;
} k_turn;

/* Heads of tokens, normalised and turned, as float. */
typedef struct mp_indexer_query_args {
    const void *x, *weight;
    void *out; /* [token, head, size] */
    int64_t heads, pitch;
    int32_t size;
    float epsilon;
    k_turn turn;
    k_indexer at;
} mp_indexer_query_args;

/* Windows as keys: means of their tokens, or sums of two windows weighted by gates; normalised and
 * turned by the place of their first token. */
typedef struct mp_indexer_keys_args {
    const void *fresh, *kept;     /* tokens: new ones, and [entry, kept_rows] those that waited */
    const void *gate, *kept_gate; /* beside them */
    const void *bias;             /* of gates: [ratio, 2 * size] */
    const void *weight;
    const int32_t *listed; /* [entry, total]: the tokens that count; NULL: all */
    void *out;             /* [entry, capacity, size] */
    void *update;          /* [entry, updates, size]: keys that new tokens end, or NULL */
    int64_t pitch, kept_rows, windows_most, capacity, updates;
    int32_t size;
    float epsilon;
    k_turn turn;
    k_indexer at;
} mp_indexer_keys_args;

/* [token, columns]: scale * the sum over heads of max(q k, 0), times the weight of the head; -inf
 * for a key that a token does not see. */
typedef struct mp_indexer_scores_args {
    const void *q, *keys;
    const void *weights; /* [token, head], or NULL */
    void *scores;
    int64_t heads, columns, capacity;
    int32_t size;
    int32_t tile, heads_at_once; /* keys and heads in shared memory */
    float scale;
    k_indexer at;
} mp_indexer_scores_args;

/* Which tokens of an entry a mask shows, and how many up to each. */
typedef struct mp_indexer_shown_args {
    const void *mask; /* int64 [batch, total] */
    int32_t *shown, *listed;
    int64_t batch, total;
} mp_indexer_shown_args;

/* The best keys of each token, or all tokens of their windows and of the one that is not full. */
typedef struct mp_indexer_emit_args {
    const void *best;      /* int64 [token, best_most] */
    const int32_t *listed; /* as above */
    int32_t *out;          /* [token, capacity] */
    int32_t *counts;       /* of each token, or NULL */
    int64_t best_most, capacity;
    int32_t whole, unused; /* tokens, not keys */
    k_indexer at;
} mp_indexer_emit_args;

/* Entries of a packed batch: what becomes of their tokens, and what is kept of them. */
typedef struct mp_indexer_state_args {
    const int32_t *lengths; /* [entry, 2]: keys, tokens that wait */
    const int32_t *wanted;  /* new tokens to tell of, or NULL */
    const int32_t *active;  /* 0: tell of none; or NULL */
    int32_t *lengths_out;
    k_windows *windows;
    const void *fresh[2], *kept[2]; /* tokens, and their gates */
    void *kept_out[2];
    void *update;
    int64_t pitch[2], kept_rows, capacity, updates;
    int32_t size;  /* of a token */
    int32_t gated; /* two windows are kept, and there are gates */
    k_indexer at;
} mp_indexer_state_args;

#endif
