/* cut.c - see cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/cut.h"

#include "graph/look.h"

bool mp_cut_read(const mp_graph *graph, int32_t value, mp_cut *out) {
    const int32_t n = mp_graph_maker(graph, value, "Slice");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX], axis[MP_RANK_MAX] = {0}, step[MP_RANK_MAX];
    int starts = 0, ends = 0, axes = 1, steps = 1;
    step[0] = 1;
    if (v == NULL || !mp_graph_ints(graph, v, "starts", 1, start, &starts) ||
        !mp_graph_ints(graph, v, "ends", 2, end, &ends) || starts != 1 || ends != 1) {
        return false;
    }
    const bool has_axes =
        mp_node_attr(&v->node, "axes") != NULL || mp_vertex_in(v, 3) != MP_NO_VALUE;
    if ((has_axes && !mp_graph_ints(graph, v, "axes", 3, axis, &axes)) || axes != 1 ||
        (mp_vertex_in(v, 4) != MP_NO_VALUE && !mp_graph_ints(graph, v, "", 4, step, &steps)) ||
        steps != 1 || step[0] != 1) {
        return false;
    }
    const int rank = mp_graph_rank(graph, v->in[0]);
    *out = (mp_cut){v->in[0], axis[0] < 0 ? axis[0] + rank : axis[0], start[0], end[0]};
    return rank > 0 && out->axis >= 0 && out->axis < rank;
}
