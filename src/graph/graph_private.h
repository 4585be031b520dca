/* graph_private.h - what the files of a graph share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_GRAPH_PRIVATE_H
#define MP_GRAPH_GRAPH_PRIVATE_H

#include "graph/graph.h"

/* `size` bytes as they are, for as long as the graph lives; NULL for NULL. */
mp_status mp__graph_keep_copy(mp_graph *graph, const void *bytes, size_t size, const void **out);

/* Makes room for one more of `width` bytes in a list of `count`. */
mp_status mp__graph_grow(void **list, int32_t count, int32_t *capacity, size_t width);

/* Says of all that the node makes who makes it. */
void mp__graph_set_producer(mp_graph *graph, const mp_vertex *v, int32_t producer);

#endif
