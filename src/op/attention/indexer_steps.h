/* indexer_steps.h - tokens choose the keys that they attend to: what both operators of
 * com.microsoft that do so have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_INDEXER_STEPS_H
#define MP_OP_INDEXER_STEPS_H

#include "kernel/attention/indexer_args.h"
#include "op/core/op.h"

/* Inputs that both have, at these places. */
enum {
    MP_INDEXER_QUERY,
    MP_INDEXER_KEY,
    MP_INDEXER_QUERY_NORM,
    MP_INDEXER_KEY_NORM,
    MP_INDEXER_COSINE,
    MP_INDEXER_SINE,
    MP_INDEXER_GATE = 8,
    MP_INDEXER_BIAS,
    MP_INDEXER_WEIGHTS,
    MP_INDEXER_POSITIONS
};

typedef struct mp_indexer {
    mp_dtype type;
    bool gated;           /* policy_mode is csa: keys are chosen; otherwise qsa: tokens are */
    mp_shape lead;        /* dimensions of tokens */
    int64_t heads, size;  /* of queries */
    int64_t width;        /* of a token that becomes a part of keys */
    int64_t best;         /* keys that a token chooses at most */
    int64_t places;       /* of a token in the first output */
    float epsilon, scale; /* of norms; of scores */
    k_indexer at;         /* all but pointers */
    k_turn turn;          /* likewise */
    mp_ref key;           /* new tokens, and how many elements one is from the next */
    int64_t pitch;
    mp_ref starts, past, positions, shown, listed, windows; /* or MP_NOWHERE */
} mp_indexer;

/* What attributes and these inputs ask for, where the dimensions of tokens are as many as `rank`.
 * `out->at.batch` and where tokens are is left to the caller; `entries` is what the tables of
 * cosines may have a number of. */
mp_status mp_indexer_read(const mp_planner *p, int rank, mp_indexer *out);
mp_status mp_indexer_read_turn(const mp_planner *p, int64_t entries, mp_indexer *out);

/* Whether input `i` is of this shape; a rank of 0 is one that must be absent. */
mp_status mp_indexer_check(const mp_planner *p, int i, const char *name, mp_shape want);

/* Where windows become keys. */
typedef struct mp_indexer_keys {
    const char *source; /* as kernels.txt has it: all, mean or gated */
    mp_ref fresh, kept, kept_gate, out, update;
    int64_t kept_rows, windows_most, capacity, updates;
} mp_indexer_keys;

mp_status mp_plan_indexer_keys(mp_planner *p, const mp_indexer *x, const mp_indexer_keys *keys);

/* Output 0, and output `counts` unless it is -1: each token chooses among `columns` keys of its
 * entry, of `capacity` in `keys`, of type `type`. */
mp_status mp_plan_indexer_choice(mp_planner *p, const mp_indexer *x, mp_ref keys, mp_dtype type,
                                 int64_t capacity, int64_t columns, int counts);

#endif
