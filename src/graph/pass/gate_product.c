/* gate_product.c - halves of rows of which one gates the other, too wide to be made by the product
 * that reads them (norm_product.c), become part of the product with packed weights that makes them:
 *
 *     GatedHalves(MatMulNBits(x, w))      becomes      MatMulNBitsGated(x, w)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum {
    ATTRS_MAX = 16,
    GROUPS = 4,
    WIDE =
        6144, /* elements of 16 bits, which is what a block of 256 lanes makes of a row at most */
};

/* The product that makes what node `n` reads, where both are one; MP_NO_NODE. */
static int32_t product_of(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    if (v->is_gone || !mp_vertex_is_own(v, "GatedHalves")) {
        return MP_NO_NODE;
    }
    const int32_t product = mp_graph_maker(graph, v->in[0], NULL);
    if (product == MP_NO_NODE || !mp_graph_same_guard(graph, product, n) ||
        mp_graph_reader(graph, v->in[0], NULL) != n) {
        return MP_NO_NODE;
    }
    const mp_vertex *m = &graph->nodes[product];
    const bool fits = strcmp(m->node.op->name, "MatMulNBits") == 0 &&
                      mp_vertex_in(m, GROUPS) == MP_NO_VALUE &&
                      !mp_node_flag(&v->node, "last", false) &&
                      m->node.attr_count + v->node.attr_count <= ATTRS_MAX &&
                      mp_node_int(&m->node, "N", 0) / 2 > WIDE;
    return fits ? product : MP_NO_NODE;
}

static mp_status join(mp_graph *graph, int32_t gate, int32_t product) {
    const mp_vertex v = graph->nodes[gate], m = graph->nodes[product];
    mp_attr attrs[ATTRS_MAX];
    char name[256];
    memcpy(attrs, m.node.attrs, m.node.attr_count * sizeof *attrs);
    memcpy(attrs + m.node.attr_count, v.node.attrs, v.node.attr_count * sizeof *attrs);
    (void)snprintf(name, sizeof name, "%s+%s", m.node.name, v.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "MatMulNBitsGated", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = m.node.attr_count + v.node.attr_count,
                          .options = m.node.options};
    return mp_graph_merge_node(graph, gate, product, &node, m.in, m.in_count, v.out, 1);
}

mp_status mp_pass_gate_product(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int32_t product = product_of(graph, n);
        if (product != MP_NO_NODE && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, n, product));
        }
    }
    return MP_OK;
}
