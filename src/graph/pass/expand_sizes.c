/* expand_sizes.c - see expand_sizes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/expand_sizes.h"

#include "graph/look.h"

int32_t mp_expand_sizes(const mp_graph *graph, int32_t list, int count) {
    const int32_t where = mp_graph_maker(graph, list, "Where");
    const int32_t *in = where != MP_NO_NODE ? graph->nodes[where].in : NULL;
    const int32_t equal = in != NULL ? mp_graph_maker(graph, in[0], "Equal") : MP_NO_NODE;
    const int32_t *sides = equal != MP_NO_NODE ? graph->nodes[equal].in : NULL;
    bool fits = sides != NULL && sides[0] == in[2];
    for (int i = 0; fits && i < count; i++) {
        fits = mp_graph_entry_is_rest(graph, sides[1], i);
    }
    return fits ? in[2] : list;
}
