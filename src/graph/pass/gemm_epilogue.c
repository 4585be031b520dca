/* gemm_epilogue.c - an activation behind a product and its bias becomes part of the product, where
 * libraries have it on the way to memory: Relu, and Gelu by tanh of 16-bit elements. What else
 * there is is left to what fuses element-wise operators.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum { ATTRS_MAX = 8 };

/* The activation's name, and whether it has a number that is 1; NULL where it is none of those. */
static const char *name_of(const mp_graph *graph, const mp_vertex *v, bool *one) {
    *one = false;
    if (mp_vertex_is(v, "Relu")) {
        return "Relu";
    }
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    *one = mp_vertex_is(v, "Gelu") && (type == MP_F16 || type == MP_BF16) &&
           strcmp(mp_node_string(&v->node, "approximate", "none"), "tanh") == 0;
    return *one ? "Gelu" : NULL;
}

static mp_status join(mp_graph *graph, int32_t product, int32_t last, const char *activation,
                      bool one) {
    const mp_vertex p = graph->nodes[product];
    const mp_vertex a = graph->nodes[last];
    const bool own = mp_vertex_is_own(&p, "MatMulBias");
    mp_attr attrs[ATTRS_MAX];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", p.node.name, a.node.name);
    mp_node node = p.node;
    node.op = own ? p.node.op : mp_op_find("com.microsoft", "FusedGemm", 1);
    node.version = 1;
    node.name = name;
    node.attrs = attrs;
    node.attr_count = 0;
    attrs[node.attr_count++] =
        (mp_attr){.name = "activation", .kind = MP_ATTR_STRING, .s = activation};
    if (one) {
        attrs[node.attr_count++] =
            (mp_attr){.name = "activation_alpha", .kind = MP_ATTR_FLOAT, .f = 1};
    }
    memcpy(attrs + node.attr_count, p.node.attrs, p.node.attr_count * sizeof *attrs);
    node.attr_count += p.node.attr_count;
    MP_TRY(mp_graph_change_node(graph, last, &node, p.in, p.in_count, a.out, 1));
    mp_graph_drop_unread(graph, p.out[0]);
    return MP_OK;
}

mp_status mp_pass_gemm_epilogue(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const bool bias = mp_vertex_is_own(v, "MatMulBias");
        bool one = false;
        if ((!bias && !mp_vertex_is(v, "Gemm")) || v->node.attr_count > (bias ? 0 : 4)) {
            continue;
        }
        const int32_t last = mp_graph_reader(graph, v->out[0], NULL);
        const char *name = last != MP_NO_NODE ? name_of(graph, &graph->nodes[last], &one) : NULL;
        if (name != NULL && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, n, last, name, one));
        }
    }
    return MP_OK;
}
