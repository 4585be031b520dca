/* expand_sizes.h - the sizes that an Expand of torch's is given.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_EXPAND_SIZES_H
#define MP_GRAPH_PASS_EXPAND_SIZES_H

#include "graph/graph.h"

/* Behind Where(sizes == -1, 1, sizes), as no size that follows from shapes is -1: the sizes, of
 * which there are `count`; or else the list itself. */
int32_t mp_expand_sizes(const mp_graph *graph, int32_t list, int count);

#endif
