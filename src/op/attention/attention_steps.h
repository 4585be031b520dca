/* attention_steps.h - attention as a step, for any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ATTENTION_STEPS_H
#define MP_OP_ATTENTION_STEPS_H

#include "kernel/attention/attention_args.h"
#include "op/core/op.h"

/* Heads of a tensor: elements of one are neighbours, the rest is steps in elements. */
typedef struct mp_heads {
    mp_ref ref;
    int64_t stride[3]; /* batch, head, row */
} mp_heads;

/* [batch, heads, rows, size] and [batch, rows, heads * size]. */
mp_heads mp_heads_first(mp_ref ref, int64_t heads, int64_t rows, int64_t size);
mp_heads mp_heads_last(mp_ref ref, int64_t heads, int64_t rows, int64_t size);

enum { MP_DEBUG_NONE = -1 };

/* A new token of each entry, to whose query and key nothing was done yet: attention brings both to
 * a root mean square of 1, rotates them by halves of the head, and puts key and value to their
 * places in the caches that it reads. */
typedef struct mp_fresh {
    mp_heads k, v;
    mp_ref cosine, sine; /* [cache_rows, half a head]; MP_NOWHERE: nothing is rotated */
    mp_ref positions;    /* int64, one an entry; MP_NOWHERE: what the lengths say */
    mp_ref scale[2];     /* of query and key, behind the mean; MP_NOWHERE: they stay as they are */
    float epsilon;
    int64_t cache_rows, present_rows;
    bool prompt; /* there is no past, whatever the lengths say */
} mp_fresh;

/* out = softmax(rule(q k^T)) v. The rule's pointers come from the references; what is not used
 * there is MP_NOWHERE. `out` has no gaps. */
typedef struct mp_attention {
    mp_dtype type; /* MP_F32, MP_F64, MP_F16, MP_BF16 */
    mp_heads q, k, v, out;
    int64_t k_piece; /* 0, or elements from 16 bytes of a key to the next ones, which lie apart */
    int64_t head_size, v_head_size;
    bool exact; /* scores are floats, wherever they are kept, of heads of K_ATTENTION_HEAD_MAX */
    k_score_rule rule;
    mp_ref mask, lengths, sink, padding;
    mp_ref debug;                /* [batch, heads, rows, keys] */
    int32_t debug_mode;          /* MP_DEBUG_NONE, or as qk_matmul_output_mode */
    const k_cache_values *cache; /* NULL: k and v are of `type`; else their strides are bytes */
    mp_ref cache_scale[2];       /* of k, of v */
    k_beams beams;               /* without `of`, which is: */
    mp_ref beams_of;
    mp_ref block_starts, block_columns; /* of rule.blocks */
    const mp_fresh *fresh;              /* NULL: the caches have all keys, and q is as it is used */
    const k_pages *pages; /* NULL: keys of an entry are neighbours; without `table`: */
    mp_ref table;
} mp_attention;

/* A rule without mask, lengths and sink, every key seen. */
k_score_rule mp_score_rule(int64_t batch, int64_t heads, int64_t kv_heads, int64_t rows,
                           int64_t keys);

/* How a mask that broadcasts to [batch, heads, rows, keys], or ends before the last key, is read.
 */
mp_status mp_score_mask(k_score_rule *rule, const mp_tensor *mask);

mp_status mp_plan_attention(mp_planner *p, const mp_attention *a);

/* Whether that rotates and appends `a->fresh`, whose lengths are int32 and of all tokens less one.
 * Otherwise it must be NULL. */
bool mp_attention_takes_fresh(const mp_planner *p, const mp_attention *a);

/* Whether that reads keys where they lie in pages, as `a` has them. Otherwise `pages` must be NULL.
 */
bool mp_attention_reads_pages(const mp_planner *p, const mp_attention *a);

/* The kernel that adds up the sums of `args->splits` blocks a row, and its grid. */
mp_status mp_plan_attention_combine(mp_planner *p, mp_dtype type, const mp_attention_args *args,
                                    const mp_kernel **kernel, mp_grid *grid);

/* Tokens that `flags` marks, int32 [batch, rows], 0 for the others; and their Q, K and V. */
typedef struct mp_listed {
    mp_ref q, k, v, flags;
} mp_listed;

/* The same where marked tokens see all keys, by a Q, K and V of their own that are placed like
 * those of `a`, and are seen by all; which these are is found on the device. `a` has a mask of
 * keys, and a token whose own is below 0 is 0. Fails: UNSUPPORTED where a head is too long for the
 * device. */
mp_status mp_plan_attention_listed(mp_planner *p, const mp_attention *a, const mp_listed *own);

/* Whether that can follow rule.blocks and has rows enough for it; otherwise there must be none. */
bool mp_attention_takes_blocks(const mp_attention *a);

/* Whether that reads a quantised cache as it is, and follows beams, as `a` has them. Otherwise
 * `cache` must be NULL, and `beams_of` MP_NOWHERE. */
bool mp_attention_reads_cache(const mp_planner *p, const mp_attention *a);

/* Whether that reads keys whose pieces lie apart, as `a` has them. Otherwise k_piece must be 0. */
bool mp_attention_reads_pieces(const mp_planner *p, const mp_attention *a);

/* Copies between layouts. */
mp_status mp_plan_heads_copy(mp_planner *p, mp_dtype type, const int64_t size[4],
                             const mp_heads *source, const mp_heads *target);

/* INVALID_ARGUMENT, for inputs 0 to 2, which are Q, K and V: their shapes, and why they do not fit.
 */
mp_status mp_attention_no_fit(const mp_planner *p, const char *why);

#endif
