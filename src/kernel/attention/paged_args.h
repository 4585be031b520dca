/* paged_args.h - arguments of the kernels of attention over caches that grow in place.
 *
 * A cache in blocks has `blocks` blocks of `block_size` tokens, each with a row for every key head.
 * Token j of an entry is token j % block_size of the block that its table names for
 * j / block_size. Any other has `capacity` rows for every key head of an entry. Tables, lengths and
 * slots come from a model: a key of no block counts as left out, or as zeros where keys are
 * gathered first; a token of no slot is not kept. The packed batch is as in
 * kernel/core/packed_batch.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAGED_ARGS_H
#define MP_KERNEL_PAGED_ARGS_H

#include "kernel/attention/attention_args.h"
#include "kernel/pointwise/narrow_args.h"

enum {
    K_PAGED_PIECE = 8,      /* neighbours that a lane takes at a time */
    K_PAGED_LANES = 128,    /* of a block of lanes */
    K_PAGED_HEAD_MAX = 768, /* 32 lanes of three pieces each */
    K_PAGED_STORE_WIDTH = 32,
    K_PAGED_ROUND = 256 /* gathered keys are numbers up to there, for tiles that are no larger */
};

/* Which tokens are whose and where they are kept. */
typedef struct k_paged {
    const int32_t *starts; /* NULL: each entry has `rows` tokens */
    const int32_t *past;   /* tokens of an entry that were there before, less past_more; or NULL */
    const int32_t *table;
    int64_t tokens, batch, blocks, table_blocks;
    int64_t rows, past_more, capacity;
    int32_t block_size; /* 0: caches are [entry, key head, capacity] */
    int32_t kv_heads;
} k_paged;

/* Keys [0] and values [1] as they are kept: elements of the type of the instance, or codes times a
 * scale, of which there is one, or one for each element of each head. */
typedef struct k_paged_cache {
    const float *scale; /* NULL: elements */
    k_narrow code;
    int32_t row; /* bytes of a head */
    int32_t scale_each;
} k_paged_cache;

/* Keys that each token has chosen, `most` places a token of which the first `counts` count: tokens
 * of the caches, or of keys and values of their own, [entry, token, head]. With `local` those of
 * the caches that the rule lets it see come before, and count once. */
typedef struct k_paged_choice {
    const int32_t *indices, *counts;
    const int32_t *lengths; /* of the own keys of each entry; NULL: all count */
    const void *key, *value;
    int64_t most, capacity;
    int32_t beside;      /* they are of the own keys */
    int32_t heads;       /* of the own keys: 1, or as many as the caches have */
    int32_t heads_first; /* own keys are [entry, head, token] */
    int32_t local;
} k_paged_choice;

typedef struct mp_paged_args {
    const void *q, *k, *v;
    void *out;
    void *part;                 /* as in mp_attention_args; lines are [head, token] */
    int64_t q_pitch, out_pitch; /* from token to token */
    int64_t splits;
    int32_t head_size, v_head_size;
    int32_t wide;                /* pieces are whole and aligned */
    int32_t group_lanes, groups; /* lanes that share a key, keys at a time */
    int32_t tokens_at_once, heads_at_once;
    k_paged at;
    k_paged_cache cache[2];
    k_paged_choice choice;
    k_score_rule rule; /* heads, kv_heads, group, causal, window, scale, softcap and sink of it,
                        * and with blocks all but masks */
} mp_paged_args;

/* The keys and values of `keys` tokens of each entry, [entry, token, key head]; lengths gets int32,
 * how many of them are valid. */
typedef struct mp_paged_gather_args {
    const void *from[2]; /* the caches */
    void *to[2];
    void *lengths;
    int64_t keys;
    int32_t size;                 /* of a head: whole pieces, aligned */
    int32_t wide;                 /* there are 2^31 pieces or more */
    k_divider by_across, by_keys; /* pieces of a token; tokens of an entry */
    k_paged at;
    k_paged_cache cache[2];
} mp_paged_gather_args;

/* Rows of new tokens: queries (where they change), keys and values. */
typedef struct mp_paged_store_args {
    const void *x[3];
    void *to[3];               /* queries as one row behind the other; the caches */
    const void *weight[2];     /* of queries and keys: they are normalised; or NULL */
    const void *cosine, *sine; /* or NULL */
    const int32_t *slots;      /* of each token, or NULL: by the table */
    const int64_t *positions;  /* that tokens are turned by, or NULL: where they are */
    int64_t pitch[3];
    int64_t heads[3]; /* 0 for none */
    int64_t cache_rows;
    int32_t size;         /* of a head */
    int32_t half, offset; /* what of it is rotated: pairs, and where they begin */
    int32_t interleaved;
    float epsilon;
    int32_t unused;
    k_paged at;
    k_paged_cache cache[2];
} mp_paged_store_args;

#endif
