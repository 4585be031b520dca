/* paged_read.h - what a node of PagedAttention or SparsePagedAttention asks for, and what others
 * share with them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PAGED_READ_H
#define MP_OP_PAGED_READ_H

#include "op/attention/paged_steps.h"

/* What inputs are for. The first eight have these places in both operators. */
enum {
    MP_PAGED_QUERY,
    MP_PAGED_KEY,
    MP_PAGED_VALUE,
    MP_PAGED_K_CACHE,
    MP_PAGED_V_CACHE,
    MP_PAGED_STARTS,
    MP_PAGED_PAST,
    MP_PAGED_TABLE,
    MP_PAGED_COSINE,
    MP_PAGED_SINE,
    MP_PAGED_SLOTS,
    MP_PAGED_SINK,
    MP_PAGED_Q_NORM,
    MP_PAGED_K_NORM,
    MP_PAGED_K_SCALE,
    MP_PAGED_V_SCALE,
    MP_PAGED_BOUNDS,
    MP_PAGED_ROLES,
    MP_PAGED_ABSENT = 255 /* the place of what an operator does not have */
};

/* Where the other inputs of an operator are. */
typedef struct mp_paged_order {
    int at[MP_PAGED_ROLES];
    bool chooses; /* tokens choose their keys */
    bool dense;   /* a batch of rows; caches of [entry, key head, token] */
} mp_paged_order;

static inline int mp_paged_at(const mp_planner *p, int role) {
    return ((const mp_paged_order *)p->node->op->detail)->at[role];
}

/* `out->cache` is left to the caller. */
mp_status mp_paged_read_node(const mp_planner *p, mp_paged *out);

/* Parts of that, for operators with a row of their own: queries, keys and values with their heads
 * and the scale; then norms, rotary positions and the sink. `out->type` is there. */
mp_status mp_paged_read_heads(const mp_planner *p, mp_paged *out);
mp_status mp_paged_read_changes(const mp_planner *p, mp_paged *out);

/* The latter, and caches that are not in blocks. */
mp_status mp_paged_read_dense(const mp_planner *p, mp_paged *out);

/* The keys that tokens choose, where they do; `r` has all else. */
mp_status mp_paged_read_choice(const mp_planner *p, mp_paged *r);

/* INVALID_ARGUMENT: the shapes of queries and of the cache of keys, and why they do not fit. */
mp_status mp_paged_no_fit(const mp_planner *p, const char *why);

#endif
