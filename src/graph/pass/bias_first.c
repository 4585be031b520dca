/* bias_first.c - what is added to all heads of a product's rows is added to the rows, and heads are
 * seen behind that, so that the product has it as its bias.
 *
 *     MatMul --> Reshape to [..., heads, size] --> Add [heads, size]
 *
 * TensorFlow writes products of Keras's attention and its Einsum layers so.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

/* Whether the constant has just the last dimensions of `heads`, as many as a row of `elements` was
 * taken apart into; leading ones aside. Its bytes are needed for another shape. */
static bool is_row(const mp_graph *graph, int32_t value, int32_t heads, int64_t elements) {
    const mp_tensor *row = mp_graph_constant(graph, value);
    const int rank = mp_graph_rank(graph, heads);
    if (row == NULL || row->data == 0 || row->shape.rank > rank ||
        mp_shape_count(&row->shape) != elements) {
        return false;
    }
    int64_t count = 1;
    for (int d = 1; d <= row->shape.rank && count < elements; d++) {
        const int64_t dim = row->shape.dim[row->shape.rank - d];
        if (dim != mp_graph_dim(graph, heads, -d)) {
            return false;
        }
        count *= dim;
    }
    return count == elements;
}

/* How many elements a row of the product by a constant matrix has; 0 where it is none. */
static int64_t columns_of(const mp_graph *graph, int32_t product) {
    const int32_t n = mp_graph_maker(graph, product, "MatMul");
    const mp_tensor *matrix =
        n != MP_NO_NODE ? mp_graph_constant(graph, graph->nodes[n].in[1]) : NULL;
    return matrix != NULL && matrix->shape.rank == 2 ? matrix->shape.dim[1] : 0;
}

/* The Reshape of a product's rows whose result the node adds a constant to, which is input `*row`;
 * or MP_NO_NODE. */
static int32_t find(const mp_graph *graph, const mp_vertex *add, int *row) {
    for (int i = 0; mp_vertex_is(add, "Add") && i < 2; i++) {
        const int32_t heads = add->in[1 - i];
        const int32_t n = mp_graph_maker(graph, heads, "Reshape");
        const int32_t x = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
        const int64_t columns = columns_of(graph, x);
        if (columns > 0 && mp_graph_reader(graph, x, "Reshape") == n &&
            mp_graph_reader(graph, heads, "Add") != MP_NO_NODE &&
            is_row(graph, add->in[i], heads, columns)) {
            *row = i;
            return n;
        }
    }
    return MP_NO_NODE;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t reshape, int row) {
    const mp_vertex add = graph->nodes[n], view = graph->nodes[reshape];
    const mp_tensor given = graph->values[add.in[row]].tensor;
    const mp_tensor flat = {.type = given.type,
                            .shape = {.rank = 1, .dim = {mp_shape_count(&given.shape)}},
                            .data = given.data};
    int32_t in[] = {view.in[0], MP_NO_VALUE}, sum = MP_NO_VALUE;
    MP_TRY(mp_graph_add_constant(graph, graph->values[add.in[row]].name, &flat, &in[1]));
    MP_TRY(mp_graph_add_value(graph, graph->values[view.in[0]].name,
                              &graph->values[view.in[0]].tensor, &sum));
    MP_TRY(mp_graph_change_node(graph, reshape, &add.node, in, 2, &sum, 1));
    const int32_t seen[] = {sum, view.in[1]};
    const mp_status status = mp_graph_change_node(graph, n, &view.node, seen, 2, add.out, 1);
    if (status != MP_OK) {
        mp_graph_remove_node(graph, reshape);
        graph->nodes[reshape] = view;
        graph->values[view.out[0]].producer = reshape;
    }
    return status;
}

mp_status mp_pass_bias_first(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        int row = 0;
        const int32_t reshape = find(graph, &graph->nodes[n], &row);
        if (reshape != MP_NO_NODE && graph->nodes[reshape].in_count == 2 &&
            mp_graph_same_guard(graph, n, reshape) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, reshape, row));
        }
    }
    return MP_OK;
}
