/* keep_reduced.c - a dimension that a reduction takes out and an Unsqueeze puts back stays, as a
 * dimension of 1, so that what follows can be computed by the kernel that reduces (ConViT).
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

enum { ATTRS_MAX = 8 };

static bool is_reduction(const mp_vertex *v) {
    static const char *const names[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) && v->node.attr_count < ATTRS_MAX &&
           mp_node_int(&v->node, "keepdims", 1) == 0;
}

/* The only axis in a list, from 0 on, of so many dimensions; or -1. */
static int64_t only_axis(const mp_graph *graph, const mp_vertex *v, int rank) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (rank < 1 || !mp_graph_ints(graph, v, "axes", 1, axes, &count) || count != 1) {
        return -1;
    }
    const int64_t axis = axes[0] < 0 ? axes[0] + rank : axes[0];
    return axis < rank ? axis : -1;
}

/* The Unsqueeze that alone reads what node `n` reduces, and puts that dimension back. */
static int32_t find(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    if (!is_reduction(v)) {
        return MP_NO_NODE;
    }
    const int rank = mp_graph_rank(graph, v->in[0]);
    const int32_t u = mp_graph_reader(graph, v->out[0], "Unsqueeze");
    const int64_t axis = only_axis(graph, v, rank);
    return u != MP_NO_NODE && mp_graph_same_guard(graph, n, u) && axis >= 0 &&
                   only_axis(graph, &graph->nodes[u], rank) == axis
               ? u
               : MP_NO_NODE;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t unsqueeze) {
    const mp_vertex v = graph->nodes[n], u = graph->nodes[unsqueeze];
    mp_attr attrs[ATTRS_MAX];
    mp_node node = v.node;
    for (size_t a = 0; a < node.attr_count; a++) {
        attrs[a] = node.attrs[a];
        if (strcmp(attrs[a].name, "keepdims") == 0) {
            attrs[a].i = 1;
        }
    }
    node.attrs = attrs;
    MP_TRY(mp_graph_merge_node(graph, n, unsqueeze, &node, v.in, v.in_count, u.out, 1));
    mp_graph_drop_inputs(graph, &u);
    return MP_OK;
}

mp_status mp_pass_keep_reduced(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int32_t unsqueeze = graph->nodes[n].is_gone ? MP_NO_NODE : find(graph, n);
        if (unsqueeze != MP_NO_NODE && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, unsqueeze));
        }
    }
    return MP_OK;
}
