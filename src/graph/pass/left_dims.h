/* left_dims.h - what is known of dimensions where a node takes some out, or one apart.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_LEFT_DIMS_H
#define MP_GRAPH_PASS_LEFT_DIMS_H

#include "graph/graph.h"

/* Dimension `d` of output `i` of a Split: a number, a name, or MP_DIM_UNKNOWN. */
int64_t mp_dim_of_split(const mp_graph *graph, const mp_vertex *v, int i, int d);

/* Dimension `d` of the output of a Slice, whose steps go forwards. */
int64_t mp_dim_of_slice(const mp_graph *graph, const mp_vertex *v, int d);

/* Whether it is a Squeeze, or a Reduce operator that leaves out the dimensions it is along. */
bool mp_takes_dims_out(const mp_vertex *v);

/* Dimension `d` of its output. */
int64_t mp_dim_left(const mp_graph *graph, const mp_vertex *v, int d);

#endif
