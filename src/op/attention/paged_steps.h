/* paged_steps.h - attention over caches that grow in place, for any operator's plan: new tokens are
 * kept, and then attention reads all tokens of their entry, those that they choose, or blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PAGED_STEPS_H
#define MP_OP_PAGED_STEPS_H

#include "kernel/attention/paged_args.h"
#include "op/core/op.h"

/* Pointers of the arguments come from the references; what is not used there is MP_NOWHERE. */
typedef struct mp_paged {
    mp_dtype type;
    bool latent;  /* values are the first elements of the keys */
    bool coded;   /* caches have codes and scales */
    bool chooses; /* tokens choose their keys */
    mp_ref x[3];  /* queries, keys, values as they come */
    mp_ref q;     /* queries as attention reads them */
    mp_ref cache[2];
    mp_ref starts, past, table, slots;
    mp_ref weight[2], cosine, sine, positions; /* of queries and keys on their way */
    mp_ref scale[2];
    mp_ref indices, counts, beside[2], lengths;      /* of keys that tokens choose */
    mp_ref key_lengths, block_starts, block_columns; /* of blocks */
    mp_ref sink;
    int64_t query_most, keys_most; /* of an entry, at most */
    mp_paged_store_args store;     /* all but pointers */
    mp_paged_args attention;       /* all but pointers, lanes and splits */
} mp_paged;

/* The rule of attention over `keys` keys an entry, whose new tokens are the last of `rows` rows. */
k_score_rule mp_paged_rule(const mp_paged *r, int64_t rows, int64_t keys);

/* Output `out` is the memory of input `in`, or a copy of it, for new tokens to be kept in. */
mp_status mp_plan_paged_cache(mp_planner *p, int in, int out, mp_ref *ref);

/* Keeps the new tokens. Queries that change on the way are scratch memory from then on. */
mp_status mp_plan_paged_store(mp_planner *p, mp_paged *r);

/* The result is output 0. */
mp_status mp_plan_paged_attention(mp_planner *p, mp_paged *r);

#endif
