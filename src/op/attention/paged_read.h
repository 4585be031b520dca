/* paged_read.h - what a node of PagedAttention or SparsePagedAttention asks for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PAGED_READ_H
#define MP_OP_PAGED_READ_H

#include "kernel/attention/paged_args.h"
#include "op/core/op.h"

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
    MP_PAGED_ROLES
};

/* Where the other inputs of an operator are. */
typedef struct mp_paged_order {
    int at[MP_PAGED_ROLES];
    bool chooses; /* tokens choose their keys */
} mp_paged_order;

static inline int mp_paged_at(const mp_planner *p, int role) {
    return ((const mp_paged_order *)p->node->op->detail)->at[role];
}

typedef struct mp_paged_read {
    mp_dtype type;
    bool latent; /* values are the first elements of the keys */
    bool coded;  /* caches have codes and scales */
    mp_ref x[3]; /* queries, keys, values as they come */
    mp_ref q;    /* queries as attention reads them */
    mp_ref cache[2];
    mp_ref indices, counts, beside[2], lengths; /* of keys that tokens choose */
    int64_t query_most, keys_most;              /* of an entry, at most */
    mp_paged_store_args store;                  /* all but pointers */
    mp_paged_args attention;                    /* all but pointers, lanes and splits */
} mp_paged_read;

/* `out->cache` is left to the caller. */
mp_status mp_paged_read_node(const mp_planner *p, mp_paged_read *out);

#endif
