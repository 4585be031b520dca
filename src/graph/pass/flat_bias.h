/* flat_bias.h - what is added to a product of [batch * heads, rows, columns], as what is added to
 * the same product of four dimensions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_FLAT_BIAS_H
#define MP_GRAPH_PASS_FLAT_BIAS_H

#include "graph/graph.h"

typedef struct mp_flat_bias {
    int32_t flat; /* what is added: [batch * heads, ..] */
    int32_t row;  /* [batch, heads, columns] that it is a view of, [batch * heads, 1, columns]; or
                   * MP_NO_VALUE, where it may have any rows and columns that can be added */
    int32_t like; /* a value whose first dimension is batch * heads, too */
    int64_t heads;
} mp_flat_bias;

/* Whether `flat` is such that it can be added in four dimensions to a product of `like`. There are
 * several heads, so that a sum with it repeats neither of them along the first dimension. */
bool mp_flat_bias_find(const mp_graph *graph, int32_t flat, int32_t like, int64_t heads,
                       mp_flat_bias *out);

/* Gives: `*out`, of four dimensions, for node `add` that adds it. `*axes`: a constant that all
 * rewrites share, so that equal nodes stay equal. The graph is to be sorted afterwards. */
mp_status mp_flat_bias_widen(mp_graph *graph, const mp_flat_bias *bias, int32_t add, int32_t *axes,
                             int32_t *out);

#endif
