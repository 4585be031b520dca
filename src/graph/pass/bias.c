/* bias.c - MatMul by a constant matrix, and a constant row added to it, are one product.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <stdio.h>

/* The node whose product input `i` of an Add is, if nobody else reads that. */
static int32_t product_at(const mp_graph *graph, const mp_vertex *add, int i) {
    const int32_t n = mp_graph_maker(graph, add->in[i], "MatMul");
    return n != MP_NO_NODE && mp_graph_uses(graph, add->in[i]) == 1 ? n : MP_NO_NODE;
}

/* Whether input `i` of the Add is a row for each row of the product. */
static bool is_row(const mp_graph *graph, const mp_vertex *add, int i, const mp_vertex *product) {
    const mp_tensor *row = mp_graph_constant(graph, mp_vertex_in(add, i));
    const mp_tensor *b = mp_graph_constant(graph, mp_vertex_in(product, 1));
    return row != NULL && b != NULL && b->shape.rank == 2 && row->shape.rank == 1 &&
           row->type == b->type && row->shape.dim[0] == b->shape.dim[1];
}

static mp_status join(mp_graph *graph, int32_t add, int32_t product, int32_t row) {
    const mp_vertex a = graph->nodes[add];
    const mp_vertex p = graph->nodes[product];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", p.node.name, a.node.name);
    const mp_node both = {.op = mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1),
                          .version = 1,
                          .name = name,
                          .options = p.node.options};
    const int32_t in[] = {p.in[0], p.in[1], row};
    const int32_t out = a.out[0];
    return mp_graph_merge_node(graph, product, add, &both, in, 3, &out, 1);
}

mp_status mp_pass_bias(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *add = &graph->nodes[n];
        for (int i = 0; i < 2 && mp_vertex_is(add, "Add"); i++) {
            const int32_t product = product_at(graph, add, i);
            if (product != MP_NO_NODE && mp_graph_same_guard(graph, n, product) &&
                is_row(graph, add, 1 - i, &graph->nodes[product]) && mp_rewrite_allowed(rewrites)) {
                MP_TRY(join(graph, n, product, add->in[1 - i]));
            }
        }
    }
    return MP_OK;
}
