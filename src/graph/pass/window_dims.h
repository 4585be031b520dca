/* window_dims.h - what is known of dimensions of convolutions and pools.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_WINDOW_DIMS_H
#define MP_GRAPH_PASS_WINDOW_DIMS_H

#include "graph/graph.h"

/* Whether it is a convolution or a pool, whose pads are said. */
bool mp_walks_windows(const mp_vertex *v);

/* Dimension `d` of its output: a number, a name, or MP_DIM_UNKNOWN. */
int64_t mp_dim_of_windows(const mp_graph *graph, const mp_vertex *v, int d);

#endif
