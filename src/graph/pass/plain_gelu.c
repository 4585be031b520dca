/* plain_gelu.c - Gelu of com.microsoft, by erf or by tanh, and with a row that is added before, is
 * ONNX's own, which other passes look for, and a sum, which may be part of a product.
 *
 *     BiasGelu, FastGelu      become      Add --> Gelu
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

#include <string.h>

static bool is_gelu(const mp_vertex *v) {
    static const char *const names[] = {"Gelu", "BiasGelu", "FastGelu"};
    for (size_t i = 0; i < MP_COUNT_OF(names) && !v->is_gone; i++) {
        if (v->node.op == mp_op_find("com.microsoft", names[i], 1)) {
            return v->out_count == 1;
        }
    }
    return false;
}

/* The sum of x and the row, which is what Gelu is of. */
static mp_status add_row(mp_graph *graph, int32_t n, int32_t *x) {
    const mp_vertex v = graph->nodes[n];
    const mp_tensor tensor = {.type = mp_graph_type(graph, *x),
                              .shape = graph->values[v.out[0]].tensor.shape};
    const mp_node node = {.op = mp_op_find("", "Add", 14),
                          .version = 14,
                          .name = v.node.name,
                          .options = v.node.options};
    const int32_t in[] = {*x, v.in[1]};
    MP_TRY(mp_graph_add_value(graph, graph->values[*x].name, &tensor, x));
    return mp_graph_add_part(graph, n, &node, in, 2, *x);
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    static const mp_attr by_tanh = {.name = "approximate", .kind = MP_ATTR_STRING, .s = "tanh"};
    const mp_vertex was = graph->nodes[n];
    const mp_node node = {.op = mp_op_find("", "Gelu", 20),
                          .version = 20,
                          .name = was.node.name,
                          .attrs = &by_tanh,
                          .attr_count = strcmp(was.node.op->name, "FastGelu") == 0,
                          .options = was.node.options};
    int32_t x = was.in[0];
    if (mp_vertex_in(&was, 1) != MP_NO_VALUE) {
        MP_TRY(add_row(graph, n, &x));
    }
    return mp_graph_change_node(graph, n, &node, &x, 1, was.out, 1);
}

mp_status mp_pass_plain_gelu(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        if (is_gelu(&graph->nodes[n]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
