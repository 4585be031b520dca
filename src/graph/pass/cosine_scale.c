/* cosine_scale.c - attention by cosines (Swin v2) has a number of each head, by which scores are
 * multiplied; then queries are, so that find_attention sees scores of its kind:
 *
 *     Mul(MatMul(q, k), s)     becomes     MatMul(Mul(q, s), k)
 *
 * where q are rows of four dimensions over their length and s is a constant [heads,1,1].
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"

#include <stdio.h>

enum { HEADS_RANK = 3, ROWS_RANK = 4 };

/* Whether it is a constant with one number for each head of the queries. */
static bool is_of_heads(const mp_graph *graph, int32_t value, int32_t queries) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    const int rank = t != NULL ? t->shape.rank : 0;
    if (rank < HEADS_RANK || rank > ROWS_RANK || t->type != mp_graph_type(graph, queries)) {
        return false;
    }
    const int64_t *dim = t->shape.dim + rank - HEADS_RANK;
    return dim[0] > 1 && mp_shape_count(&t->shape) == dim[0] &&
           mp_graph_dim(graph, queries, 1) == dim[0];
}

/* The product of quotients whose result, in[*scores], the node multiplies; MP_NO_NODE. */
static int32_t product_of(const mp_graph *graph, int32_t n, int *scores) {
    const mp_vertex *v = &graph->nodes[n];
    for (*scores = 0; mp_vertex_is(v, "Mul") && *scores < 2; ++*scores) {
        const int32_t product = mp_graph_maker(graph, v->in[*scores], "MatMul");
        const int32_t queries = product != MP_NO_NODE ? graph->nodes[product].in[0] : MP_NO_VALUE;
        if (product != MP_NO_NODE && mp_graph_reader(graph, v->in[*scores], NULL) == n &&
            mp_graph_same_guard(graph, product, n) &&
            mp_graph_maker(graph, queries, "Div") != MP_NO_NODE &&
            mp_graph_rank(graph, queries) == ROWS_RANK &&
            is_of_heads(graph, v->in[1 - *scores], queries)) {
            return product;
        }
    }
    return MP_NO_NODE;
}

mp_status mp_pass_cosine_scale(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        int scores = 0;
        const int32_t product = product_of(graph, n, &scores);
        if (product == MP_NO_NODE || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        const mp_vertex mul = graph->nodes[n], p = graph->nodes[product];
        const mp_tensor like = graph->values[p.in[0]].tensor;
        char name[256];
        int32_t scaled = MP_NO_VALUE;
        (void)snprintf(name, sizeof name, "%s_query", mul.node.name);
        const mp_node node = {.op = mul.node.op,
                              .version = mul.node.version,
                              .name = name,
                              .options = mul.node.options};
        MP_TRY(mp_graph_add_value(graph, name, &like, &scaled));
        const int32_t factors[] = {p.in[0], mul.in[1 - scores]}, in[] = {scaled, p.in[1]};
        MP_TRY(mp_graph_add_beside(graph, product, &node, factors, 2, scaled));
        MP_TRY(mp_graph_merge_node(graph, n, product, &p.node, in, 2, mul.out, 1));
        changed = true;
    }
    return mp_graph_tidy(graph, changed);
}
