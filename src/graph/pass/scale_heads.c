/* scale_heads.c - rows that are multiplied by a number and then seen as heads are seen so first,
 * and multiplied then, where find_attention takes the number.
 *
 *     Mul --> Reshape --> Transpose --> MatMul      becomes      Reshape --> Mul --> ...
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_match.h"

enum { RANK = 4 };

/* The Reshape that takes heads of `rows` apart for a product. */
static int32_t heads_of(const mp_graph *graph, int32_t rows) {
    const int32_t r = mp_graph_reader(graph, rows, "Reshape");
    const bool fits = r != MP_NO_NODE && graph->nodes[r].in[0] == rows &&
                      mp_graph_rank(graph, graph->nodes[r].out[0]) == RANK;
    const int32_t t =
        fits ? mp_graph_reader(graph, graph->nodes[r].out[0], "Transpose") : MP_NO_NODE;
    return t != MP_NO_NODE && mp_graph_reader(graph, graph->nodes[t].out[0], "MatMul") != MP_NO_NODE
               ? r
               : MP_NO_NODE;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t r, int scaled) {
    const mp_vertex mul = graph->nodes[n];
    const mp_vertex reshape = graph->nodes[r];
    const int32_t result = reshape.out[0];
    const int32_t rows = mul.in[scaled];
    int32_t in[] = {mul.in[0], mul.in[1]};
    MP_TRY(mp_graph_add_value(graph, graph->values[result].name, &graph->values[result].tensor,
                              &in[scaled]));
    const int32_t from[] = {rows, reshape.in[1]};
    MP_TRY(mp_graph_change_node(graph, r, &reshape.node, from, 2, &in[scaled], 1));
    const mp_status status = mp_graph_change_node(graph, n, &mul.node, in, 2, &result, 1);
    if (status != MP_OK) {
        mp_graph_remove_node(graph, r);
        graph->nodes[r] = reshape;
        graph->values[result].producer = r;
    }
    return status;
}

mp_status mp_pass_scale_heads(mp_graph *graph, mp_rewrites *rewrites) {
    bool changed = false;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int scaled = mp_scaled_input(graph, &graph->nodes[n]);
        const int32_t r = scaled >= 0 ? heads_of(graph, graph->nodes[n].out[0]) : MP_NO_NODE;
        if (r != MP_NO_NODE && graph->nodes[r].in_count == 2 && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, r, scaled));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
