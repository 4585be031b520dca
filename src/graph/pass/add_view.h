/* add_view.h - a node more that sees a value in other dimensions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ADD_VIEW_H
#define MP_GRAPH_PASS_ADD_VIEW_H

#include "graph/graph.h"

/* Adds a Reshape or an Expand (`op`) of `from` to `rank` dimensions, of which a Reshape's may be -1
 * and 0, under the conditions of node `like`. `name` is the node's and the new value's. The graph
 * is to be sorted afterwards. */
mp_status mp_graph_add_view(mp_graph *graph, int32_t like, const char *name, const char *op,
                            int32_t from, const int64_t *dim, int rank, int32_t *out);

#endif
