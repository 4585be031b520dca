/* turn_gather.c - elements that are picked out of the columns of a product by constant indexes, and
 * then transposed, are picked out of the rows of the transposed product: that is one of transposed
 * matrices, which costs nothing, and the indexes are transposed once.
 *
 *     Transpose(GatherElements(MatMul(x, y), indexes, axis -1))
 *       becomes      GatherElements(MatMul(y', x'), indexes', axis -2)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum { RANK = 3 };

static const int64_t swapped[RANK] = {0, 2, 1};

typedef struct picked {
    int32_t product, gather, turn; /* nodes */
} picked;

static bool find(const mp_graph *graph, int32_t n, picked *out) {
    const mp_vertex *turn = &graph->nodes[n];
    if (!mp_graph_turns(graph, n, swapped, RANK)) {
        return false;
    }
    const int32_t g = mp_graph_maker(graph, turn->in[0], "GatherElements");
    const mp_vertex *gather = g != MP_NO_NODE ? &graph->nodes[g] : NULL;
    const int64_t axis = gather != NULL ? mp_node_int(&gather->node, "axis", 0) : 0;
    if (gather == NULL || (axis != -1 && axis != RANK - 1) ||
        mp_graph_constant(graph, gather->in[1]) == NULL ||
        mp_graph_reader(graph, gather->out[0], NULL) != n) {
        return false;
    }
    const int32_t p = mp_graph_maker(graph, gather->in[0], "MatMul");
    *out = (picked){p, g, n};
    return p != MP_NO_NODE && mp_graph_reader(graph, gather->in[0], NULL) == g &&
           mp_graph_rank(graph, graph->nodes[p].in[0]) == RANK &&
           mp_graph_rank(graph, graph->nodes[p].in[1]) == RANK &&
           mp_graph_same_guard(graph, p, n) && mp_graph_same_guard(graph, g, n);
}

static mp_status add_turned(mp_graph *graph, int32_t like, int32_t from, int32_t *out) {
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = swapped, .count = RANK};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = graph->nodes[like].node.name,
                          .attrs = &perm,
                          .attr_count = 1};
    mp_tensor tensor = {.type = mp_graph_type(graph, from), .shape = {.rank = RANK}};
    for (int d = 0; d < RANK; d++) {
        tensor.shape.dim[d] = mp_graph_dim(graph, from, (int)swapped[d]);
    }
    MP_TRY(mp_graph_add_value(graph, graph->values[from].name, &tensor, out));
    return mp_graph_add_beside(graph, like, &node, &from, 1, *out);
}

static mp_status rewrite(mp_graph *graph, const picked *m) {
    const mp_vertex product = graph->nodes[m->product], gather = graph->nodes[m->gather];
    const mp_vertex turn = graph->nodes[m->turn];
    const mp_attr axis = {.name = "axis", .kind = MP_ATTR_INT, .i = RANK - 2};
    const mp_tensor tensor = {.type = mp_graph_type(graph, gather.in[0]),
                              .shape = {.rank = MP_DIM_UNKNOWN}};
    int32_t sides[2] = {MP_NO_VALUE, MP_NO_VALUE}, in[2] = {MP_NO_VALUE, MP_NO_VALUE};
    mp_node node = gather.node;
    node.attrs = &axis;
    node.attr_count = 1;
    MP_TRY(add_turned(graph, m->product, product.in[1], &sides[0]));
    MP_TRY(add_turned(graph, m->product, product.in[0], &sides[1]));
    MP_TRY(add_turned(graph, m->gather, gather.in[1], &in[1]));
    MP_TRY(mp_graph_add_value(graph, graph->values[gather.in[0]].name, &tensor, &in[0]));
    MP_TRY(mp_graph_change_node(graph, m->product, &product.node, sides, 2, in, 1));
    const mp_status status =
        mp_graph_merge_node(graph, m->turn, m->gather, &node, in, 2, turn.out, 1);
    if (status != MP_OK) {
        mp_graph_remove_node(graph, m->product);
        graph->nodes[m->product] = product;
        graph->values[product.out[0]].producer = m->product;
        return status;
    }
    mp_graph_drop_inputs(graph, &product);
    return MP_OK;
}

mp_status mp_pass_turn_gather(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        picked m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
