/* heads_product.c - a product of heads that were put first, of a batch of one, becomes FusedMatMul,
 * which steps through the rows that the heads lie in.
 *
 *     Transpose [1, rows, heads, size] --> Reshape [heads, rows, size] --> MatMul
 *       becomes      Reshape [rows, heads, size] --> FusedMatMul transBatchA, or transBatchB
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_part.h"

#include <string.h>

enum { FLAT = 3, ATTRS_MAX = 8 };

/* By input; in the order of the operator's list, in which they are the last. */
static const char *const batches[] = {"transBatchA", "transBatchB"};

/* Whether input `i` of a product is a matrix for each head, as those of the other are or one. */
static bool is_product(const mp_graph *graph, const mp_vertex *v, int i) {
    const bool fused = !v->is_gone && strcmp(v->node.op->name, "FusedMatMul") == 0 &&
                       mp_node_int(&v->node, batches[i], 0) == 0;
    return (fused || mp_vertex_is(v, "MatMul")) && v->in_count == 2 &&
           v->node.attr_count < ATTRS_MAX && mp_graph_rank(graph, v->in[1 - i]) == FLAT;
}

/* [1, rows, heads, size] of which only node `n` reads [heads, rows, size], its input `i`. */
static int32_t find_heads(const mp_graph *graph, int32_t n, int i) {
    const int32_t flat = graph->nodes[n].in[i];
    const int32_t r = mp_graph_maker(graph, flat, "Reshape");
    const int32_t t =
        r != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[r].in[0], NULL) : MP_NO_NODE;
    if (t == MP_NO_NODE || !mp_puts_heads_first(graph, &graph->nodes[t]) ||
        mp_graph_reader(graph, flat, NULL) != n ||
        mp_graph_reader(graph, graph->nodes[t].out[0], NULL) != r ||
        mp_graph_rank(graph, flat) != FLAT) {
        return MP_NO_VALUE;
    }
    const int32_t heads = graph->nodes[t].in[0];
    const bool fits = mp_graph_dim(graph, heads, 0) == 1 && mp_graph_dim(graph, heads, 2) > 0 &&
                      mp_graph_dim(graph, heads, 3) > 0 &&
                      mp_graph_dim(graph, flat, 0) == mp_graph_dim(graph, heads, 2) &&
                      mp_graph_dim(graph, flat, 2) == mp_graph_dim(graph, heads, 3);
    return fits ? heads : MP_NO_VALUE;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int i, int32_t heads) {
    const mp_vertex was = graph->nodes[n];
    const int64_t dim[FLAT] = {-1, mp_graph_dim(graph, heads, 2), mp_graph_dim(graph, heads, 3)};
    mp_attr attrs[ATTRS_MAX];
    mp_node node = was.node;
    int32_t in[] = {was.in[0], was.in[1]};
    for (size_t a = 0; a < node.attr_count; a++) {
        attrs[a] = node.attrs[a];
    }
    attrs[node.attr_count++] = (mp_attr){.name = batches[i], .kind = MP_ATTR_INT, .i = 1};
    node.attrs = attrs;
    node.op = mp_op_find("com.microsoft", "FusedMatMul", 1);
    node.version = 1;
    MP_TRY(mp_graph_add_view(graph, n, graph->values[heads].name, "Reshape", heads, dim, FLAT,
                             &in[i]));
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 2, was.out, 1));
    mp_graph_drop_unread(graph, was.in[i]);
    return MP_OK;
}

mp_status mp_pass_heads_product(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        for (int i = 0; i < 2; i++) {
            const int32_t heads =
                is_product(graph, &graph->nodes[n], i) ? find_heads(graph, n, i) : MP_NO_VALUE;
            if (heads != MP_NO_VALUE && mp_rewrite_allowed(rewrites)) {
                MP_TRY(rewrite(graph, n, i, heads));
            }
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
