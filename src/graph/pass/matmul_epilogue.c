/* matmul_epilogue.c - a product of matrices of which one is transposed before, or whose result is
 * multiplied by a number, becomes FusedMatMul, which steps through them as they lie.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <math.h>
#include <stdio.h>

/* Whether node `n` swaps the last two dimensions, and nothing else. */
static bool swaps_last(const mp_graph *graph, int32_t n) {
    const mp_attr *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    const int rank = perm != NULL ? (int)perm->count : 0;
    for (int d = 0; d + 2 < rank; d++) {
        if (perm->ints[d] != d) {
            return false;
        }
    }
    return rank >= 2 && perm->ints[rank - 1] == rank - 2 && perm->ints[rank - 2] == rank - 1;
}

/* The node that multiplies the product by a number, or divides it; MP_NO_NODE. */
static int32_t scaled_behind(const mp_graph *graph, const mp_vertex *product, double *alpha) {
    const int32_t n = mp_graph_reader(graph, product->out[0], NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const bool divides = v != NULL && mp_vertex_is(v, "Div");
    const mp_dtype type = mp_graph_type(graph, product->in[0]);
    *alpha = 1;
    if (v == NULL || (!divides && !mp_vertex_is(v, "Mul")) || type == MP_NONE || type == MP_F64) {
        return MP_NO_NODE; /* alpha is a float */
    }
    const int at = v->in[0] == product->out[0] ? 1 : 0;
    if ((divides && at == 0) || mp_graph_rank(graph, v->in[at]) > 1 ||
        mp_graph_rank(graph, v->in[at]) < 0 || !mp_graph_number(graph, v->in[at], alpha)) {
        return MP_NO_NODE;
    }
    *alpha = divides ? 1 / *alpha : *alpha;
    return isfinite((float)*alpha) ? n : MP_NO_NODE;
}

static mp_status rewrite(mp_graph *graph, int32_t n, const int32_t turned[2], int32_t behind,
                         double alpha) {
    const mp_vertex product = graph->nodes[n];
    const int32_t last = behind != MP_NO_NODE ? behind : n;
    const int32_t out = graph->nodes[last].out[0];
    int32_t in[2] = {product.in[0], product.in[1]};
    mp_attr attrs[3];
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s", product.node.name, behind != MP_NO_NODE ? "+" : "",
                   behind != MP_NO_NODE ? graph->nodes[behind].node.name : "");
    mp_node node = {.op = mp_op_find("com.microsoft", "FusedMatMul", 1),
                    .version = 1,
                    .name = name,
                    .attrs = attrs,
                    .options = product.node.options};
    if (behind != MP_NO_NODE) {
        attrs[node.attr_count++] =
            (mp_attr){.name = "alpha", .kind = MP_ATTR_FLOAT, .f = (float)alpha};
    }
    for (int i = 0; i < 2; i++) {
        if (turned[i] != MP_NO_NODE) {
            attrs[node.attr_count++] =
                (mp_attr){.name = i == 0 ? "transA" : "transB", .kind = MP_ATTR_INT, .i = 1};
            in[i] = graph->nodes[turned[i]].in[0];
        }
    }
    MP_TRY(mp_graph_change_node(graph, last, &node, in, 2, &out, 1));
    mp_graph_drop_unread(graph, product.out[0]);
    mp_graph_drop_unread(graph, product.in[0]);
    mp_graph_drop_unread(graph, product.in[1]);
    return MP_OK;
}

mp_status mp_pass_matmul_epilogue(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        double alpha = 1;
        if (!mp_vertex_is(v, "MatMul")) {
            continue;
        }
        int32_t turned[2];
        for (int i = 0; i < 2; i++) {
            turned[i] = mp_graph_maker(graph, v->in[i], "Transpose");
            turned[i] = swaps_last(graph, turned[i]) ? turned[i] : MP_NO_NODE;
        }
        const int32_t behind = scaled_behind(graph, v, &alpha);
        if ((turned[0] != MP_NO_NODE || turned[1] != MP_NO_NODE || behind != MP_NO_NODE) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, turned, behind, alpha));
        }
    }
    return MP_OK;
}
