/* constant_norm.h - BatchNormalization by constants as a factor and a summand of each channel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CONSTANT_NORM_H
#define MP_GRAPH_PASS_CONSTANT_NORM_H

#include "graph/graph.h"

/* Whether the node is BatchNormalization, as models are run, by constants whose bytes are here. */
bool mp_is_constant_norm(const mp_graph *graph, const mp_vertex *v);

/* What such a node multiplies channel `i` by, and what it then adds. */
void mp_constant_norm_at(const mp_graph *graph, const mp_vertex *v, int64_t i, double *factor,
                         double *summand);

#endif
