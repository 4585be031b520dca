/* attention_leads.h - attention of three leading dimensions, such as windows or grids of an image,
 * as one of two: neighbours among the three are seen as one.
 *
 *     [batch, windows, rows, heads, size]   as   [batch * windows, rows, heads, size]
 *     [batch, rows, windows, heads, size]   as   [batch, rows, windows * heads, size]
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ATTENTION_LEADS_H
#define MP_GRAPH_PASS_ATTENTION_LEADS_H

#include "graph/pass/attention_match.h"

typedef struct mp_leads {
    int order[MP_WIDE_RANK];         /* of the dimensions, so that those seen as one are there */
    int at;                          /* in that order; the other is behind */
    bool has_behind;                 /* the Transpose behind the product is written, too */
    int64_t out_perm[MP_SIDE_RANK];  /* of the result that is written */
    int64_t out_shape[MP_WIDE_RANK]; /* what it is then seen as; for a Reshape */
} mp_leads;

/* Which of them may be one, so that the fewest copies are left. `behind` is the order in which a
 * Transpose puts the result, or NULL. False where attention is not such, or sizes that have to be
 * known are not. */
bool mp_leads_find(const mp_graph *graph, const mp_attention_match *m, const mp_attr *behind,
                   mp_leads *out);

/* Q, K and V become views of four dimensions, for node `n`; what cannot be seen so is transposed
 * first. The graph is to be sorted afterwards. */
mp_status mp_leads_view(mp_graph *graph, int32_t n, const mp_leads *leads, mp_attention_match *m);

/* `out`, which nobody makes, is seen in what node `n` makes. */
mp_status mp_leads_result(mp_graph *graph, int32_t n, const mp_leads *leads, int32_t out);

#endif
