/* dense_steps.h - what the attention operators of com.microsoft share: a bias on Q, K and V, caches
 * that may be buffers with room, masks of padding, scores as an output.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DENSE_STEPS_H
#define MP_OP_DENSE_STEPS_H

#include "op/attention/attention_steps.h"

/* Q, K and V of new tokens, and the caches before them. */
typedef struct mp_dense {
    mp_dtype type;
    int64_t batch, heads;
    int64_t rows, fresh; /* queries, new keys */
    int64_t head, value; /* elements of a head of Q and K, of V */
    int64_t past;        /* keys of the past that count */
    int64_t room;        /* rows of the caches as they come */
    bool shared;         /* the caches that leave have the same rows, otherwise past + fresh */
    bool key_packs;      /* keys lie in caches as [batch, heads, head / x, room, x], where x of them
                          * are 16 bytes; only with `shared` */
    mp_heads q, k, v;
    mp_ref past_at[2];    /* [batch, heads, room, size]; MP_NOWHERE where there is no past */
    mp_ref present_at[2]; /* MP_NOWHERE: nobody wants them */
    k_beams beams;        /* without `of`, which is: */
    mp_ref beams_of;      /* MP_NOWHERE: there are none */
} mp_dense;

static inline int64_t mp_dense_keys(const mp_dense *d) {
    return d->past + d->fresh;
}

/* Rows of the caches that leave. */
static inline int64_t mp_dense_present_rows(const mp_dense *d) {
    return d->shared ? d->room : mp_dense_keys(d);
}

/* Attribute num_heads. Fails: INVALID_ARGUMENT unless it is between 1 and 2^31 - 1. */
mp_status mp_dense_heads(const mp_planner *p, int64_t *out);

/* past_sequence_length, input `i`: how much of a buffer with room is the past. Sets `past` and
 * `shared`. Fails: INVALID_ARGUMENT where the new keys do not fit behind it. */
mp_status mp_dense_past(const mp_planner *p, int i, mp_dense *d);

/* cache_indirection, input `i`: [batch / width, width, rows]. Where `width` is an input,
 * beam_width, there are beams if that is above 1; pass -1 for none. */
mp_status mp_dense_beams(const mp_planner *p, int i, int width, mp_dense *d);

/* Side `side` of `sides` that lie side by side in each head: [batch, rows, heads, sides, head]. */
mp_heads mp_dense_side(const mp_dense *d, mp_ref ref, int64_t rows, int64_t sides, int64_t side);

/* The bias [3, heads, size] in the order of such rows, [heads, 3, size], in scratch memory. */
mp_status mp_dense_pack_bias(mp_planner *p, const mp_dense *d, mp_ref *bias);

/* Weights and bias of Q, K and V side by side. */
typedef struct mp_projection {
    int64_t tokens, in, out; /* x is [tokens, in], the weights are [in, out] */
    mp_ref x, weights, bias; /* bias: may be MP_NOWHERE */
} mp_projection;

/* Inputs x, weights and bias, which may be left out: x has `rank` dimensions, the last of which the
 * weights take. Fails: INVALID_ARGUMENT where their shapes do not fit. */
mp_status mp_dense_operands(const mp_planner *p, const int in[3], int rank, mp_projection *x);

/* The sizes of a projection's heads, from `out` columns and the attribute qkv_hidden_sizes. Sets
 * `head` and `value`, given `heads`. */
mp_status mp_dense_columns(const mp_planner *p, int64_t out, mp_dense *d);

/* The sizes of entries, rows and heads of input `i`, [batch, rows, width], and of a projection to
 * `out` columns. Sets batch, rows, fresh, heads, head and value. */
mp_status mp_dense_read(const mp_planner *p, int i, int64_t out, mp_dense *d);

/* The product, in scratch memory. */
mp_status mp_dense_project(mp_planner *p, mp_dtype type, const mp_projection *x, mp_ref *out);

/* Q, K and V where a projection left them. */
void mp_dense_place(mp_dense *d, mp_ref projected);

/* With do_rotary: Q and K, where `d` says that they are, turned by their positions behind the past,
 * in scratch memory. Fails: INVALID_ARGUMENT for rotary_embedding_dim. */
mp_status mp_dense_rotate(mp_planner *p, mp_dense *d);

/* Caches of keys and values in one tensor [2, batch, heads, rows, size]: input `past` and output
 * `present`. Sets past, room and where they are, and declares the output; with
 * past_present_share_buffer, input `length` says how much of the past counts. */
mp_status mp_dense_stacked(mp_planner *p, int past, int present, int length, mp_dense *d);

/* What becomes of scores: attributes scale, unidirectional and mask_filter_value. */
void mp_dense_rule(const mp_planner *p, const mp_dense *d, mp_attention *a);

/* Which forms of a mask there may be. */
typedef enum mp_dense_forms {
    MP_DENSE_KEYS,   /* of MultiHeadAttention: lengths, and flags of keys or of queries and keys */
    MP_DENSE_CLASSIC /* of Attention: ends with beginnings, one flag that stands for all, and flags
                      * of all positions that there may be, too */
} mp_dense_forms;

/* The mask of padding, input `i`, where it is given. */
mp_status mp_dense_mask(const mp_planner *p, int i, mp_dense_forms forms, const mp_dense *d,
                        mp_attention *a);

/* attention_bias, input `i`: [batch or 1, heads or 1, rows, keys], added to the scores. */
mp_status mp_dense_score_bias(const mp_planner *p, int i, mp_attention *a);

/* The caches grow: says where all keys and values are. */
mp_status mp_dense_grow(mp_planner *p, const mp_dense *d, mp_attention *a);

/* The same, and Q attends to them. `a` has rule, masks and output; the rest is set here. */
mp_status mp_dense_attend(mp_planner *p, const mp_dense *d, mp_attention *a);

/* The same where a projection left Q, K and V, turned by their positions, with output 0. */
mp_status mp_dense_attend_projected(mp_planner *p, mp_dense *d, mp_ref projected, mp_attention *a);

#endif
