/* attention_args.h - arguments of the kernels of attention. Tensors are walked by strides in
 * elements, so that both layouts of ONNX, packed ones and caches are one case; elements of a head
 * are neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ATTENTION_ARGS_H
#define MP_KERNEL_ATTENTION_ARGS_H

#include "kernel/core/index_args.h"

enum {
    K_ATTENTION_SLICE = 8,      /* elements of a head that a lane of attention_few.cu holds */
    K_ATTENTION_LANES = 128,    /* of its blocks */
    K_ATTENTION_HEAD_MAX = 256, /* 32 lanes of a slice each; the tiles go no further either */
    K_ATTENTION_STATE = 2       /* what is kept of a row beside its sums: its maximum and its sum */
};

typedef enum k_mask_kind {
    K_MASK_NONE,
    K_MASK_BOOL, /* false leaves a key out */
    K_MASK_F32,  /* the others are added to the score */
    K_MASK_F64,
    K_MASK_F16,
    K_MASK_BF16
} k_mask_kind;

typedef enum k_sink_kind {
    K_SINK_NONE,
    K_SINK_ZERO, /* one more score, 0, takes part in the sum and has no value */
    K_SINK_HEADS /* the same with a score of each head, of the type of Q */
} k_sink_kind;

/* Which keys a query sees and what becomes of their scores. Row r of a key head is query r % rows
 * of query head r / rows of its group. */
typedef struct k_score_rule {
    const void *mask, *lengths, *sink;
    int64_t mask_stride[4]; /* batch, head, query, key; 0 repeats */
    int64_t mask_keys;      /* keys from here on are left out */
    int64_t batch, heads, kv_heads, group;
    int64_t rows, keys;
    int64_t past;   /* keys before the first query, unless lengths say so */
    int64_t window; /* keys that a query sees, itself included; 0 for all */
    int32_t mask_kind, sink_kind;
    int32_t lengths_wide;   /* lengths are int64, otherwise int32; NULL: every key is valid */
    int32_t length_more;    /* what is added to them */
    int32_t past_by_length; /* the queries are the last of the valid keys */
    int32_t causal;
    double scale, softcap;
} k_score_rule;

typedef struct mp_attention_args {
    const void *q, *k, *v;
    void *out;
    void *part; /* of attention_few: sums of each row and split, where there are several */
    int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3]; /* batch, head, row */
    int64_t splits, split_keys;
    int32_t head_size, v_head_size;
    int32_t wide; /* rows are multiples of 8 elements that begin at multiples of 16 bytes */
    int32_t group_lanes, groups;  /* of attention_few: lanes that share a key, keys at a time */
    int32_t tile_rows, tile_keys; /* of attention_tile: multiples of 4 */
    int32_t unused;
    k_score_rule rule;
} mp_attention_args;

/* Scores of `rows` rows from `row_first` of `units` key heads from `unit_first`, `columns` each. */
typedef struct mp_attention_softmax_args {
    const void *scores;
    void *weights; /* may be the scores */
    void *debug;   /* scores on their way, of all rows and keys; or NULL */
    int64_t units, unit_first, rows, row_first, columns;
    int32_t debug_mode; /* 0: scaled, 1: after the soft cap, 2: after the mask too */
    int32_t unused;
    k_score_rule rule;
} mp_attention_softmax_args;

/* Caches of keys [0] and of values [1]: fresh rows behind the past ones. */
typedef struct mp_kv_append_args {
    const void *past[2], *fresh[2];
    void *present[2];
    const void *lengths; /* int32, valid keys of each entry less one, or NULL */
    int64_t batch, heads;
    int64_t past_rows, fresh_rows, present_rows;
    int64_t visited;            /* rows that are looked at: all present ones, or the fresh */
    int64_t units[2];           /* of a row, in units of the instance */
    int64_t fresh_stride[2][3]; /* batch, head, row, in units */
    int32_t fresh_only;
    int32_t prompt; /* no past, whatever the lengths say */
    int32_t wide;   /* 2^31 units or more */
    int32_t unused;
    k_divider by_units[2], by_rows, by_heads;
} mp_kv_append_args;

typedef enum k_position_kind {
    K_POSITION_TOKEN,  /* a row of cosines for each token: the caches have three dimensions */
    K_POSITION_GIVEN,  /* int64, one a token */
    K_POSITION_FIRST,  /* int64, that of the first token of every entry */
    K_POSITION_LENGTHS /* int32 as in the cache's lengths: the tokens are the last ones */
} k_position_kind;

typedef struct mp_rotary_args {
    const void *x, *cosine, *sine, *positions;
    void *out;
    int64_t batch, heads, rows;
    int64_t x_stride[3], out_stride[3]; /* batch, head, row */
    int64_t cache_rows;                 /* a position beyond is taken as the nearest */
    int64_t pieces;                     /* of a head: pairs, or packs of pairs */
    int32_t head_size, half;            /* half the elements that are rotated */
    int32_t interleaved;
    int32_t position_kind;
    int32_t prompt; /* K_POSITION_LENGTHS: tokens begin at 0 */
    int32_t packed; /* pieces of 16 bytes */
} mp_rotary_args;

#endif
