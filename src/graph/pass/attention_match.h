/* attention_match.h - attention as exporters write it out, found around a Softmax.
 *
 *     scores = MatMul(q, k transposed), times numbers, capped, with masks added or put in place
 *     out    = MatMul(Softmax(scores), v)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ATTENTION_MATCH_H
#define MP_GRAPH_PASS_ATTENTION_MATCH_H

#include "graph/look.h"

enum { MP_SIDE_RANK = 4, MP_WIDE_RANK = 5, MP_FACTORS_MAX = 8, MP_MASKS_MAX = 4 };

/* Q, K or V: the dimensions of `value` in the order `perm` are [.., heads, rows, size]. */
typedef struct mp_attention_side {
    int32_t value;
    int rank;
    int64_t perm[MP_WIDE_RANK];
} mp_attention_side;

/* A node that masks scores: Add, or Where. */
typedef struct mp_mask_step {
    int32_t node;
    int32_t value; /* what is added, or the condition */
    int32_t fill;  /* of a Where: what takes the place of scores; MP_NO_VALUE for an Add */
    bool inverted; /* of a Where: true takes them away */
} mp_mask_step;

typedef struct mp_attention_match {
    int32_t scores, softmax, product; /* nodes */
    mp_attention_side q, k, v;
    int rank;                        /* of the result */
    bool grouped;                    /* heads of K and V are shared */
    bool cast;                       /* scores change their type on the way */
    bool exact;                      /* scores are floats of halves, which are not to be rounded */
    int32_t factors[MP_FACTORS_MAX]; /* numbers that the scores are multiplied by */
    uint32_t divided;                /* bit i: divided by number i */
    int factor_count;
    double softcap;                   /* 0: none */
    mp_mask_step masks[MP_MASKS_MAX]; /* from the Softmax up */
    int mask_count;
} mp_attention_match;

/* Which input of a Mul or Div by one number, known when the graph is planned, is not the number; -1
 * of other nodes. */
int mp_scaled_input(const mp_graph *graph, const mp_vertex *v);

/* What is around node `n`, a Softmax. False where it is not all of attention, or not such that one
 * operator can do it, which takes MP_SIDE_RANK dimensions: of more see attention_leads.h. */
bool mp_attention_find(const mp_graph *graph, int32_t n, mp_attention_match *out);

#endif
