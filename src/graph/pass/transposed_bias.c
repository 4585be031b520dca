/* transposed_bias.c - the bias of a transposed convolution is added by what follows it.
 *
 * Libraries add it in a pass of its own over the result. Element-wise nodes behind, which a cluster
 * joins with the sum, make such a pass anyway.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum { X, W, BIAS, INPUTS, RANK_MIN = 3 };

/* Whether the node has a constant bias, of as many elements as it makes channels, and one
 * element-wise node alone reads its result. */
static bool fits(const mp_graph *graph, const mp_vertex *v) {
    const mp_tensor *bias = mp_vertex_is(v, "ConvTranspose") && v->in_count == INPUTS
                                ? mp_graph_constant(graph, v->in[BIAS])
                                : NULL;
    if (bias == NULL || bias->data == 0 || bias->shape.rank != 1 || v->loop != NULL ||
        mp_graph_rank(graph, v->in[W]) < RANK_MIN) {
        return false;
    }
    const int64_t channels = mp_graph_dim(graph, v->in[W], 1),
                  groups = mp_node_int(&v->node, "group", 1);
    if (channels < 1 || groups < 1 || bias->shape.dim[0] % groups != 0 ||
        bias->shape.dim[0] / groups != channels) {
        return false; /* broken, which the operator says */
    }
    const int32_t behind = mp_graph_reader(graph, v->out[0], NULL);
    return behind != MP_NO_NODE && graph->nodes[behind].node.op->express != NULL;
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const mp_value bias = graph->values[v.in[BIAS]];
    const mp_node add = {.op = mp_op_find("", "Add", 14),
                         .version = 14,
                         .name = v.node.name,
                         .options = v.node.options};
    mp_tensor row = bias.tensor;
    int32_t in[] = {MP_NO_VALUE, MP_NO_VALUE};
    row.shape.rank = mp_graph_rank(graph, v.in[W]) - 1;
    for (int d = 1; d < row.shape.rank; d++) {
        row.shape.dim[d] = 1;
    }
    MP_TRY(mp_graph_add_value(graph, v.node.name, &graph->values[v.out[0]].tensor, &in[0]));
    MP_TRY(mp_graph_add_constant(graph, bias.name, &row, &in[1]));
    graph->values[in[1]].device = bias.device;
    MP_TRY(mp_graph_change_node(graph, n, &v.node, v.in, BIAS, &in[0], 1));
    return mp_graph_add_beside(graph, n, &add, in, 2, v.out[0]);
}

mp_status mp_pass_transposed_bias(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count && graph->has_clusters; n++) {
        if (fits(graph, &graph->nodes[n]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
