/* add_view.h - a node more beside another, such as one that sees a value in other dimensions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ADD_VIEW_H
#define MP_GRAPH_PASS_ADD_VIEW_H

#include "graph/graph.h"

/* Adds a node that makes `out`, under the conditions of node `like`. The graph is to be sorted
 * afterwards, by mp_graph_tidy. */
mp_status mp_graph_add_beside(mp_graph *graph, int32_t like, const mp_node *node, const int32_t *in,
                              int in_count, int32_t out);

/* The same of a node that does a part of what node `like` does: it stands for the same nodes. */
mp_status mp_graph_add_part(mp_graph *graph, int32_t like, const mp_node *node, const int32_t *in,
                            int in_count, int32_t out);

/* Adds a Reshape or an Expand (`op`) of `from` to `rank` dimensions, of which a Reshape's may be -1
 * and 0, in the same way. `name` is the node's and the new value's. */
mp_status mp_graph_add_view(mp_graph *graph, int32_t like, const char *name, const char *op,
                            int32_t from, const int64_t *dim, int rank, int32_t *out);

/* Adds a constant list of one number, such as a Slice or an Unsqueeze reads. */
mp_status mp_graph_add_number(mp_graph *graph, int64_t number, int32_t *out);

/* At the end of a pass: if it has changed the graph so, gaps are closed, and nodes that were added
 * go where they belong. */
mp_status mp_graph_tidy(mp_graph *graph, bool changed);

#endif
