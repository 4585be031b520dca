/* name_dims.h - what is known of the dimensions of a node's result.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_NAME_DIMS_H
#define MP_GRAPH_PASS_NAME_DIMS_H

#include "graph/graph.h"

/* Gives dimensions that are not known, of values that no node makes, a name each, below all names
 * that there are. `*lowest`: the lowest name then. */
void mp_name_inputs(mp_graph *graph, int64_t *lowest);

/* Takes over what is known of dimensions of the inputs of node `n`, as numbers or as names, to
 * those of its first output that are not known, or of all outputs of a Split. What is left gets
 * names of its own. */
void mp_name_dims(mp_graph *graph, int32_t n, int64_t *lowest);

#endif
