/* name_dims.h - what is known of the dimensions of a node's result.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_NAME_DIMS_H
#define MP_GRAPH_PASS_NAME_DIMS_H

#include "graph/graph.h"

/* Takes over what is known of dimensions of its inputs, as numbers or as names, to those of its
 * first output that are not known. */
void mp_name_dims(mp_graph *graph, int32_t n);

#endif
