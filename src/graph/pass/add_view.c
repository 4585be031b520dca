/* add_view.c - see add_view.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/add_view.h"

#include "graph/look.h"

mp_status mp_graph_add_beside(mp_graph *graph, int32_t like, const mp_node *node, const int32_t *in,
                              int in_count, int32_t out) {
    const int32_t guard = graph->nodes[like].guard;
    MP_TRY(mp_graph_add_node(graph, node, in, in_count, &out, 1));
    graph->nodes[graph->node_count - 1].guard = guard;
    return MP_OK;
}

mp_status mp_graph_add_part(mp_graph *graph, int32_t like, const mp_node *node, const int32_t *in,
                            int in_count, int32_t out) {
    MP_TRY(mp_graph_add_beside(graph, like, node, in, in_count, out));
    return mp_graph_set_origins(graph, graph->node_count - 1, graph->nodes[like].origins);
}

mp_status mp_graph_add_view(mp_graph *graph, int32_t like, const char *name, const char *op,
                            int32_t from, const int64_t *dim, int rank, int32_t *out) {
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {rank}}, .data = (mp_addr)dim};
    const mp_node node = {.op = mp_op_find("", op, 13), .version = 13, .name = name};
    mp_tensor view = {.type = mp_graph_type(graph, from), .shape = {.rank = rank}};
    int32_t in[] = {from, MP_NO_VALUE};
    for (int d = 0; d < rank; d++) {
        view.shape.dim[d] = dim[d] > 0 ? dim[d] : MP_DIM_UNKNOWN;
    }
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    MP_TRY(mp_graph_add_value(graph, name, &view, out));
    return mp_graph_add_beside(graph, like, &node, in, 2, *out);
}

mp_status mp_graph_add_number(mp_graph *graph, int64_t number, int32_t *out) {
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {1}}, .data = (mp_addr)&number};
    return mp_graph_add_constant(graph, "", &list, out);
}

mp_status mp_graph_tidy(mp_graph *graph, bool changed) {
    if (!changed) {
        return MP_OK;
    }
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
