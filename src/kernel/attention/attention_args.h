/* attention_args.h - arguments of the kernels of attention. Tensors are walked by strides in
 * elements, so that both layouts of ONNX, packed ones and caches are one case; elements of a head
 * are neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ATTENTION_ARGS_H
#define MP_KERNEL_ATTENTION_ARGS_H

#include "kernel/core/index_args.h"
#include "kernel/pointwise/narrow_args.h"

enum {
    K_ATTENTION_SLICE = 8,      /* elements of a head that a lane of attention_few.cu holds */
    K_ATTENTION_LANES = 128,    /* of its blocks, and of those of attention_combine.cu */
    K_ATTENTION_HEAD_MAX = 256, /* 32 lanes of a slice each; the tiles go no further either */
    K_MMA_ROWS = 16,            /* of a warp of attention_mma */
    K_TILE_WINDOW = 256,        /* blocks that attention_tile_blocks looks at in one go */
    K_TILE_SEEN_WORDS = 2,      /* bits for its rows */
    K_DECODE_ROWS = 8,          /* of a block of attention_decode */
    K_DECODE_WARPS = 8,         /* at most */
    K_DECODE_BOX = 4,           /* floats in whose place bytes are counted that blocks send */
    K_ATTENTION_STATE = 2       /* what is kept of a row beside its sums: its maximum and its sum */
};

/* Keys of a group of lanes of attention_few that are loaded at a time. */
#define K_ATTENTION_AHEAD(rows) ((rows) == 1 ? 4 : 2)

/* Keys that a warp of attention_decode has on its way, and their values: codes of a byte, or
 * elements of two. */
#define K_DECODE_KEYS(head, codes) (((head) <= 64 ? 32 : 16) * ((codes) ? 2 : 1))

/* Keys that a warp of attention_mma takes at a time, of elements of `size` bytes: fewer where sums
 * or masks take many registers. */
#define K_MMA_KEYS(head, size) ((head) > 128 || (size) == 4 ? 32 : 64)

/* The same of attention_direct, whose warps have 16 or 32 `rows`, and registers for so many of them
 * on a multiprocessor. */
#define K_DIRECT_KEYS(head, rows, size) \
    ((size) == 4 || ((rows) == 32 && (head) > 64 && (head) <= 96) ? 32 : 64)
#define K_DIRECT_FEW(head, rows, size, masked) \
    ((rows) == 32 || ((size) == 4 && (head) > 64) || ((masked) && (head) * (size) > 128))
#define K_DIRECT_WARPS(head, rows, size, masked) (K_DIRECT_FEW(head, rows, size, masked) ? 8 : 12)
#define K_DIRECT_REGISTERS(head, rows, size, masked) \
    (K_DIRECT_FEW(head, rows, size, masked) ? 255 : 168)
enum {
    K_DIRECT_ROW_BYTES = 40,      /* of shared memory, of a warp's rows */
    K_DIRECT_ADDED_KEYS = 1 << 11 /* at most, for which it has what all rows of a block add */
};

/* attention_group, whose blocks have 64 or 128 `rows`: lanes; blocks on a multiprocessor; bytes of
 * shared memory, but for K_GROUP_ALIGN - 1 that its place may cost. */
enum {
    K_GROUP_KEYS = 64, /* of a step */
    K_GROUP_AHEAD = 4, /* stages of a block's ring */
    K_GROUP_ALIGN = 1024,
    K_GROUP_STEP_BITS = 4 /* of shared memory, for a step of keys by blocks: those of 64 tokens or
                           * more, of which the rows of a block of lanes touch no more */
};
#define K_GROUP_LANES(rows)                ((rows)*2)
#define K_GROUP_BLOCKS(head, rows, masked) ((head) > 64 ? 1 : (rows) > 64 || (masked) ? 2 : 3)
#define K_GROUP_MASKS(rows)                ((rows)*K_GROUP_KEYS * 2) /* of a stage */
#define K_GROUP_HELD(head, rows, masked)                                             \
    (((rows) + 2 * K_GROUP_AHEAD * K_GROUP_KEYS) * ((head) < 64 ? 64 : (head)) * 2 + \
     (rows)*K_DIRECT_ROW_BYTES + ((masked) ? K_GROUP_AHEAD * K_GROUP_MASKS(rows) : 0))

/* attention_turns, whose blocks have groups of 64 rows and one of which a warp copies keys and one
 * values: a multiprocessor has one block. Four groups find the registers that they need for short
 * heads, as those who copy leave them theirs. */
enum {
    K_TURNS_COPIERS = 64, /* lanes */
    K_TURNS_STAGES = 8,
    K_TURNS_ROWS = 64, /* of a tile */
    K_TURNS_BYTES = K_TURNS_STAGES * (2 * K_GROUP_KEYS * 128 + 2 * 8)
};
#define K_TURNS_GROUPS(head) ((head) < 64 ? 4 : 3)
#define K_TURNS_LANES(head)  ((K_TURNS_GROUPS(head) + 1) * 128)

typedef enum k_mask_kind {
    K_MASK_NONE,
    K_MASK_BOOL, /* false leaves a key out */
    K_MASK_F32,  /* the others are added to the score */
    K_MASK_F64,
    K_MASK_F16,
    K_MASK_BF16
} k_mask_kind;

/* Masks that attention_mma and attention_direct load ahead, for elements of `size` bytes. */
#define K_MMA_MASK(kind, size) \
    ((kind) == K_MASK_BOOL ||  \
     ((size) == 4 ? (kind) == K_MASK_F32 : (kind) == K_MASK_F16 || (kind) == K_MASK_BF16))

/* Masks of their own that rows of a block have. */
typedef enum k_row_masks {
    K_ROW_MASKS_NONE,
    K_ROW_MASKS_ASKED, /* lanes ask for those of their scores */
    K_ROW_MASKS_COPIED /* attention_group copies them with the keys: they are of two bytes, and all
                        * rows begin at multiples of 16 */
} k_row_masks;

typedef enum k_sink_kind {
    K_SINK_NONE,
    K_SINK_ZERO, /* one more score, 0, takes part in the sum and has no value */
    K_SINK_HEADS /* the same with a score of each head, of the type of Q */
} k_sink_kind;

/* Keys that are padding: their scores get `filter` added, so that in a row of nothing but padding
 * the scores decide as they would without it. */
typedef enum k_padding_kind {
    K_PADDING_NONE,
    K_PADDING_FLAGS, /* int32 for keys: none above 0 */
    K_PADDING_MARKS, /* bool for keys: those that are true */
    K_PADDING_ENDS,  /* int32 for entries: the keys from there on */
    K_PADDING_SPANS  /* the same, and behind all of them int32: the keys before that one, too */
} k_padding_kind;

/* Blocks of keys that queries see: a row of blocks for each block of queries, in CSR form, in
 * `layouts` that heads take in turns. What is out of range there is left out. */
typedef struct k_block_rule {
    const int32_t *starts;  /* [layouts, rows + 1]: where rows begin among the columns */
    const int32_t *columns; /* [layouts, most] */
    int64_t layouts, rows, most;
    int32_t size; /* tokens of a block, of fewer than 2^31 in all; 0: every key is seen */
    int32_t unused;
} k_block_rule;

/* Which keys a query sees and what becomes of their scores. Row r of a key head is query r % rows
 * of query head r / rows of its group. */
typedef struct k_score_rule {
    const void *mask, *lengths, *sink, *padding;
    int64_t mask_stride[4];    /* batch, head, query, key; 0 repeats */
    int64_t padding_stride[2]; /* of flags: batch, query; keys are neighbours */
    int64_t mask_keys;         /* keys from here on are left out */
    int64_t batch, heads, kv_heads, group;
    int64_t rows, keys;
    int64_t past;   /* keys before the first query, unless lengths say so */
    int64_t window; /* keys that a query sees, itself included; 0 for all */
    int32_t mask_kind, sink_kind, padding_kind;
    float filter;
    int32_t lengths_wide;   /* lengths are int64, otherwise int32; NULL: every key is valid */
    int32_t lengths_summed; /* int32 [batch + 1]: a length is the step to the next one */
    int32_t length_more;    /* what is added to them */
    int32_t past_by_length; /* the queries are the last of the valid keys */
    int32_t causal, unused;
    double scale, softcap;
    k_block_rule blocks; /* of attention_tile_blocks, attention_group_blocks, attention_blocks */
} k_score_rule;

/* out[entry][head][row][key], in rows of `pitch` bytes: whether the rule's blocks, whose sizes are
 * whole packs, show the key. */
enum { K_BLOCK_MASK_PACK = 16, K_BLOCK_MASK_ROWS = 16 /* of a block of lanes */ };

typedef struct mp_block_mask_args {
    void *out;
    int64_t pitch; /* a multiple of K_BLOCK_MASK_PACK */
    k_score_rule rule;
} mp_block_mask_args;

/* Groups of `width` entries that take rows of the past from each other. */
typedef struct k_beams {
    const void *of; /* int32 [batch, pitch]: the entry of the group whose row it is; or NULL */
    int64_t width, pitch;
    int64_t rows; /* rows from there on are one's own */
} k_beams;

/* Keys [0] and values [1] of a quantised cache, as attention reads them: strides count bytes. */
typedef struct k_cache_values {
    const void *scale[2]; /* float */
    int32_t channels[2];  /* a scale for each head and element, otherwise one for all */
    int32_t zero, unused;
    k_narrow type;
} k_cache_values;

typedef struct mp_attention_args {
    const void *q, *k, *v;
    void *out;
    void *part; /* of attention_few and attention_decode: sums of each row and split, where there
                   are several */
    int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3]; /* batch, head, row */
    int64_t splits, split_keys;
    int64_t k_piece; /* of attention_few_wide: elements from 16 bytes of a key to the next ones */
    int32_t head_size, v_head_size;
    int32_t wide; /* rows are multiples of 8 elements that begin at multiples of 16 bytes */
    int32_t group_lanes, groups;  /* of attention_few: lanes that share a key, keys at a time; of
                                     attention_turns: tiles that a block has at a time */
    int32_t tile_rows, tile_keys; /* of attention_tile: multiples of 4; of attention_mma, of
                                     K_MMA_ROWS and K_MMA_KEYS */
    int32_t round;                /* of attention_mma: blocks that come up at a time; INT32_MAX
                                     where each comes up as another ends; of attention_turns:
                                     tiles of a head */
    int32_t meet_log;             /* of attention_decode: 2^meet_log blocks are a cluster */
    int32_t added_keys;           /* of attention_direct: room for what masks and padding add to the
                                     scores of keys, the same for all rows of a block; or 0 */
    int32_t row_masks;            /* one of K_ROW_MASKS_... */
    int32_t row_blocks;           /* of attention_mma, too: so many share a key head */
    int32_t key_heads_by, unused; /* of attention_group_blocks, where each head is a unit of its own
                                     with all its rows: so many share a key head */
    k_divider by_splits, by_row_blocks, by_kv_heads, by_rows;
    k_divider by_round, by_units; /* of attention_mma; units: key heads of all entries */
    k_score_rule rule;
    k_cache_values cache; /* of attention_few_cache and attention_decode_codes */
    k_beams beams;        /* of attention_few */
} mp_attention_args;

/* Keys of an entry in blocks: key j is row j % size of the block that its table names for j / size;
 * one of no block is left out. */
typedef struct k_pages {
    const int32_t *table; /* [batch, columns]; NULL: all keys of an entry are neighbours */
    int64_t columns, blocks;
    int32_t size; /* a multiple of K_DECODE_KEYS */
    k_divider by_size;
} k_pages;

/* Of attention_decode_pages and attention_decode_codes. Codes are signed bytes. */
typedef struct mp_pages_args {
    mp_attention_args attention;
    k_pages pages;
} mp_pages_args;

/* A new token of each entry, whose query and key attention_decode brings to a root mean square of 1
 * and rotates by halves of a head, and whose key and value it puts behind those that lengths say
 * are there: int32, of all tokens less one. The query is that of the attention. */
typedef struct k_fresh {
    const void *k, *v;
    void *keys, *values;       /* the caches, which attention reads by other names */
    const void *cosine, *sine; /* [cache_rows, half a head]; NULL: nothing is rotated */
    const void *positions;     /* int64, one an entry; NULL: what comes before the token */
    const void *scale[2];      /* [head], of a query and of a key; NULL: they stay as they are */
    int64_t k_stride[2], v_stride[2]; /* batch, head */
    int64_t present_rows, cache_rows; /* a place beyond is taken as the nearest */
    int32_t prompt;                   /* nothing comes before, whatever the lengths say */
    float epsilon;                    /* added to the mean square */
} k_fresh;

typedef struct mp_fresh_args {
    mp_attention_args attention;
    k_fresh fresh;
} mp_fresh_args;

/* Of attention_tile_listed: listed tokens see all keys by a Q, K and V of their own; the others see
 * what the rule says, and the listed ones. A token whose mask is below 0 is 0. */
typedef struct mp_listed_args {
    mp_attention_args attention;
    const void *q, *k, *v;            /* of listed tokens, placed like the others' */
    const int32_t *flags;             /* [batch, rows]: 0 for those that are not listed */
    const int32_t *list, *list_count; /* [batch, rows] and [batch]: which are, in their order */
} mp_listed_args;

/* What finds that list. */
typedef struct mp_token_list_args {
    const int32_t *flags;
    int32_t *list, *list_count;
    int64_t batch, rows;
} mp_token_list_args;

/* Scores of `rows` rows from `row_first` of `units` key heads from `unit_first`, `columns` each,
 * `pitch` elements apart. */
typedef struct mp_attention_softmax_args {
    const void *scores;
    void *weights; /* may be the scores */
    void *debug;   /* scores on their way, of all rows and keys; or NULL */
    int64_t units, unit_first, rows, row_first, columns, pitch;
    int32_t debug_mode; /* 0: scaled, 1: after the soft cap, 2: after the mask too */
    int32_t unused;
    k_score_rule rule;
} mp_attention_softmax_args;

/* Caches of keys [0] and of values [1]: fresh rows behind the past ones. */
typedef struct mp_kv_append_args {
    const void *past[2], *fresh[2];
    void *present[2];
    const void *lengths; /* int32, valid keys of each entry less one, or NULL */
    k_beams beams;
    int64_t batch, heads;
    int64_t past_rows, fresh_rows, present_rows;
    int64_t past_used;          /* rows of the past that count, unless lengths say so */
    int64_t visited;            /* rows that are looked at: all present ones, or the fresh */
    int64_t units[2];           /* of a row, in units of the instance */
    int64_t fresh_stride[2][3]; /* batch, head, row, in units */
    int32_t fresh_only;
    int32_t prompt; /* no past, whatever the lengths say */
    int32_t wide;   /* 2^31 units or more */
    int32_t unused;
    k_divider by_units[2], by_rows, by_heads;
} mp_kv_append_args;

/* Caches of keys [0] and of values [1] that keep a window of the tokens. `all` has the old rows and
 * the fresh ones behind them, `used` of each entry and one more; of these the last stay in
 * `present`. */
typedef struct mp_kv_window_args {
    const void *all[2];
    void *present[2];
    const void *lengths; /* int32, tokens of each entry less one */
    int32_t *used;
    int64_t batch, heads;
    int64_t fresh_rows, all_rows, capacity; /* capacity: rows of `present` */
    int64_t spare;                          /* of which so many are more than the window */
    int64_t units[2];                       /* of a row, in units of the instance */
    int32_t prompt;                         /* no past, whatever the lengths say */
    int32_t unused;
} mp_kv_window_args;

/* Keys [0] and values [1] as T, [batch, heads, rows, size] by strides, and in a cache of another
 * type, whose rows are `narrow_bytes` long. */
typedef struct mp_kv_quantize_args {
    void *wide[2], *narrow[2];
    int64_t wide_stride[2][3]; /* batch, head, row */
    int64_t batch, heads, rows, size;
    int64_t narrow_rows, narrow_bytes;
    int32_t back; /* from the cache */
    int32_t unused;
    k_cache_values cache;
} mp_kv_quantize_args;

/* Entries of `length` rows, of which the last ones are padding, and the same rows packed. */
typedef enum k_rows_kind {
    K_ROWS_PADDED, /* packed rows get their padding, rows of 0 */
    K_ROWS_PACKED, /* padded rows lose it */
    K_ROWS_LISTED  /* row i is row places[i] of x, or 0 where x has none such */
} k_rows_kind;

enum { K_PADDING_TENSORS = 3 };

typedef struct mp_padding_args {
    const void *x[K_PADDING_TENSORS]; /* moved alike; behind the last one the first again */
    const void *counts;               /* int32 [batch], rows of an entry that are no padding */
    int64_t *found;                   /* their sum and their maximum */
    int32_t *starts; /* [batch + 1], where entries begin among packed rows, and where they end */
    int32_t *places; /* rows by what is to be done with them */
    void *out[K_PADDING_TENSORS];
    int64_t batch, length;
    int64_t given, rows; /* rows of x, of the result */
    int64_t units;       /* of a row, in units of the instance */
    int32_t kind;
    int32_t inverse; /* of padding_places: from places of rows to rows of places */
    int32_t count;   /* of tensors */
    int32_t before;  /* padding comes before the rows of an entry, not behind them */
} mp_padding_args;

typedef enum k_position_kind {
    K_POSITION_TOKEN,   /* a row of cosines for each token: the caches have three dimensions */
    K_POSITION_GIVEN,   /* int64, one a token */
    K_POSITION_FIRST,   /* int64, that of the first token of every entry */
    K_POSITION_LENGTHS, /* int32 as in the cache's lengths: the tokens are the last ones */
    K_POSITION_AXES,    /* int64, three a token: each pair of a head goes by one of them */
    K_POSITION_PAST,    /* the tokens are those behind `past` */
    K_POSITION_STRIDED  /* cosines for each row of each head, by cache_stride */
} k_position_kind;

typedef struct mp_rotary_args {
    const void *x, *cosine, *sine, *positions;
    void *out;
    int64_t batch, heads, rows;
    int64_t x_stride[3], out_stride[3]; /* batch, head, row */
    int64_t cache_rows;                 /* a position beyond is taken as the nearest */
    int64_t cache_stride[3];            /* batch, head, row */
    int64_t pieces;                     /* of a head: pairs, or packs of pairs */
    int32_t head_size, half;            /* half the elements that are rotated */
    int32_t interleaved;
    int32_t position_kind;
    int32_t prompt; /* K_POSITION_LENGTHS: tokens begin at 0 */
    int32_t packed; /* pieces of 16 bytes */
    /* K_POSITION_AXES: pairs from axis_end[0] on go by the second position, from axis_end[1] on by
     * the third. With axes_mixed, of three pairs below axis_end[0] the second one goes by the
     * second position, and below axis_end[1] the third one by the third. */
    int32_t axes_mixed, axis_end[2];
    float scale; /* of what is rotated */
    float base;  /* without caches: pair i turns by position / base^(i / half) */
    float epsilon;
    int64_t past;
    const void *weight; /* [head_size], by which heads over their root mean square are multiplied
                         * first; 0: they are not */
} mp_rotary_args;

/* Heads of new tokens, where they are and where they go to: batch, head, row. */
typedef struct k_rotary_side {
    const void *x;
    void *out;
    int64_t x_stride[3], out_stride[3];
    int32_t appends; /* behind the rows that lengths say are there */
    float epsilon;
    const void *weight; /* as in mp_rotary_args; of what is rotated */
} k_rotary_side;

/* Q [0] and K [1], which are rotated, and V [2], by positions of all kinds but K_POSITION_FIRST and
 * K_POSITION_AXES. Lengths are those of K_POSITION_LENGTHS, too. */
typedef struct mp_rotary_append_args {
    k_rotary_side side[3];
    const void *cosine, *sine, *positions, *lengths;
    int64_t count; /* of pieces, fewer than 2^31 */
    int64_t rows, present_rows;
    int64_t cache_rows;      /* a position beyond is taken as the nearest */
    int64_t cache_stride[3]; /* batch, head, row */
    int64_t past;
    int32_t first[3]; /* head of each side, among `heads` */
    int32_t heads;
    int32_t pieces; /* of a head: two packs each */
    int32_t half;   /* half the elements that are rotated */
    int32_t interleaved;
    int32_t prompt; /* no past, whatever the lengths say */
    int32_t position_kind;
    float scale;       /* of what is rotated */
    int32_t placed;    /* where lengths leave no room in the caches, positions are the places'
                        * anyway */
    int64_t past_more; /* lengths and that are the rows before */
    k_divider by_pieces, by_heads, by_rows;
    /* Caches that grow: of keys [0] and values [1], [batch, kv_heads, past_rows, head] each. */
    const void *old[2];
    int64_t past_rows, batch;
    int64_t kept; /* pieces of both caches, fewer than 2^31 with `count`; 0: they do not grow */
    k_divider by_present, by_kv_heads, by_batch;
} mp_rotary_append_args;

/* out = x * cos(angle) + turned * sin(angle), for heads of two kinds [0] and [1] with the same
 * tokens. */
typedef struct mp_rotary_given_args {
    const void *angle; /* float; a row for each token */
    const void *x[2], *turned[2];
    void *out[2];
    int64_t heads[2];
    int64_t batch, rows, size;
    int64_t groups, group; /* of heads, and how many a lane takes */
} mp_rotary_given_args;

/* out = x + bias, which repeats after `row` packs of 16 bytes. */
enum { K_HEADS_BIAS_SIDES = 3, K_HEADS_BIAS_AHEAD = 4, K_HEADS_BIAS_LANES = 256 };

typedef struct k_bias_side {
    const void *x, *bias;
    void *out;
    uint32_t packs, row; /* packs: of all rows, fewer than 2^30 */
    k_divider by_row;
} k_bias_side;

typedef struct mp_heads_bias_args {
    k_bias_side side[K_HEADS_BIAS_SIDES];
} mp_heads_bias_args;

/* out[head, query, key] = table[head, bucket of key - query]. */
typedef struct mp_relative_bias_args {
    const void *table;
    void *out;
    int64_t heads, rows;
    int32_t buckets, exact; /* of each direction, and those of them that are one distance each */
    int32_t both;           /* keys behind the query have buckets of their own */
    float log_range;        /* of the distance where buckets end by the last exact one */
} mp_relative_bias_args;

enum { K_GATED_BIAS_PLACES, K_GATED_BIAS_ROWS };
enum { K_GATED_BIAS_LANES = 128 };
enum { K_GATED_BIAS_GATES = 16 }; /* of a block at most: rows times entries of the batch */

/* out[entry, head, row] = bias[head, row] times a gate that follows from the row's query. */
typedef struct mp_gated_bias_args {
    const void *query, *query_bias, *weight, *weight_bias, *limit, *bias;
    const int32_t *offsets; /* where each given token belongs; NULL: in their order */
    int32_t *places;        /* which token belongs at each place, or -1 */
    void *out;
    int64_t batch, rows, tokens;
    int64_t heads, size, columns;    /* of a head; of the weight: half of them for each gate */
    int64_t tiles, parts;            /* of the rows and of the batch, one of each a block, */
    int32_t tile, entries;           /* and how many they have */
    int32_t whole_heads, whole_rows; /* they are whole packs of 16 aligned bytes */
    k_divider by_row;                /* by the packs or the elements of a row */
    int32_t stage, unused;           /* K_GATED_BIAS_... */
} mp_gated_bias_args;

#endif
