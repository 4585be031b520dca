/* unflatten.c - a product of rows that had more dimensions before is a product of these.
 *
 *     Reshape to [all rows, elements] --> Gemm or MatMul --> Reshape to anything
 *
 * ONNX Runtime makes a Gemm of a MatMul and an Add where shapes are known, and TensorFlow writes
 * products of more than two dimensions so. What later passes look for stands between the two in
 * other models, and nothing does here.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/rows_back.h"

enum { RANK_MIN = 3 };

static const mp_tensor *constant_at(const mp_graph *graph, const mp_vertex *v, int i, int rank) {
    const mp_tensor *x = mp_graph_constant(graph, mp_vertex_in(v, i));
    return x != NULL && x->shape.rank == rank ? x : NULL;
}

/* A constant row; an exporter leaves out one of zeros. */
static bool has_bias(const mp_vertex *v) {
    return mp_vertex_in(v, 2) != MP_NO_VALUE;
}

/* Of a constant matrix as it is and a constant row, if one. */
static bool is_wanted(const mp_graph *graph, const mp_vertex *v) {
    if (mp_vertex_is(v, "MatMul")) {
        return constant_at(graph, v, 1, 2) != NULL && mp_graph_rank(graph, v->in[0]) == 2;
    }
    const mp_tensor *matrix = mp_vertex_is(v, "Gemm") ? constant_at(graph, v, 1, 2) : NULL;
    const mp_tensor *row = matrix != NULL && has_bias(v) ? constant_at(graph, v, 2, 1) : NULL;
    const bool fits = row != NULL
                          ? row->type == matrix->type && row->shape.dim[0] == matrix->shape.dim[1]
                          : matrix != NULL && !has_bias(v);
    return fits && mp_node_int(&v->node, "transA", 0) == 0 &&
           mp_node_int(&v->node, "transB", 0) == 0 && mp_node_float(&v->node, "alpha", 1) == 1 &&
           mp_node_float(&v->node, "beta", 1) == 1;
}

/* What is seen as rows of so many elements, if it has them in three dimensions or more. */
static int32_t before_rows(const mp_graph *graph, int32_t rows, int64_t elements) {
    const int32_t n = mp_graph_maker(graph, rows, "Reshape");
    const int32_t x = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    return x != MP_NO_VALUE && mp_graph_rank(graph, x) >= RANK_MIN &&
                   mp_graph_dim(graph, x, -1) == elements
               ? x
               : MP_NO_VALUE;
}

/* Whether a Reshape gives the same whatever the dimensions of what it reads are. */
static bool asks_for_no_dimension(const mp_graph *graph, const mp_vertex *reshape) {
    int64_t shape[MP_RANK_MAX];
    int count = 0;
    if (!mp_graph_ints(graph, reshape, "shape", 1, shape, &count)) {
        return false;
    }
    for (int d = 0; d < count; d++) {
        if (shape[d] == 0) {
            return false;
        }
    }
    return count > 0;
}

/* Whether its list of sizes is the dimensions of x but for the last one, and `columns`. */
static bool asks_for_rows(const mp_graph *graph, const mp_vertex *reshape, int32_t x,
                          int64_t columns) {
    const int rank = mp_graph_rank(graph, x);
    const int32_t list = mp_vertex_in(reshape, 1);
    bool same = mp_graph_list_length(graph, list) == rank &&
                mp_graph_rank(graph, reshape->out[0]) == rank &&
                mp_graph_entry_dim(graph, list, rank - 1) == columns;
    for (int d = 0; same && d < rank - 1; d++) {
        same = mp_graph_entry_is(graph, list, d, x, d);
    }
    return same;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t behind, int32_t x) {
    const mp_vertex gemm = graph->nodes[n];
    const mp_vertex reshape = graph->nodes[behind];
    const int64_t columns = graph->values[gemm.in[1]].tensor.shape.dim[1];
    const bool goes = mp_rows_are_back(graph, reshape.out[0], x, columns) ||
                      asks_for_rows(graph, &reshape, x, columns);
    const bool biased = has_bias(&gemm);
    const int version = biased ? 1 : 13;
    const mp_node node = {.op = biased ? mp_op_find(MP_OWN_DOMAIN, "MatMulBias", version)
                                       : mp_op_find("", "MatMul", version),
                          .version = version,
                          .name = gemm.node.name,
                          .options = gemm.node.options};
    const int32_t in[] = {x, gemm.in[1], mp_vertex_in(&gemm, 2)};
    int32_t out = reshape.out[0];
    if (!goes) {
        mp_tensor tensor = {.type = mp_graph_type(graph, gemm.in[1])};
        tensor.shape.rank = mp_graph_rank(graph, x);
        for (int d = 0; d < tensor.shape.rank; d++) {
            tensor.shape.dim[d] = d < tensor.shape.rank - 1 ? mp_graph_dim(graph, x, d) : columns;
        }
        MP_TRY(mp_graph_add_value(graph, graph->values[gemm.out[0]].name, &tensor, &out));
        const int32_t again[] = {out, reshape.in[1]};
        MP_TRY(mp_graph_change_node(graph, behind, &reshape.node, again, 2, reshape.out, 1));
    } else {
        mp_graph_remove_node(graph, behind);
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, in, biased ? 3 : 2, &out, 1));
    mp_graph_drop_unread(graph, gemm.in[0]);
    if (goes) {
        mp_graph_drop_unread(graph, reshape.in[1]);
    }
    return MP_OK;
}

mp_status mp_pass_unflatten(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!is_wanted(graph, v)) {
            continue;
        }
        const int64_t elements = graph->values[v->in[1]].tensor.shape.dim[0];
        const int32_t x = before_rows(graph, v->in[0], elements);
        const int32_t behind =
            x != MP_NO_VALUE ? mp_graph_reader(graph, v->out[0], "Reshape") : MP_NO_NODE;
        if (behind == MP_NO_NODE || graph->nodes[behind].in_count != 2) {
            continue;
        }
        const mp_vertex *reshape = &graph->nodes[behind];
        const int64_t columns = graph->values[v->in[1]].tensor.shape.dim[1];
        if ((asks_for_no_dimension(graph, reshape) || asks_for_rows(graph, reshape, x, columns)) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, behind, x));
        }
    }
    return MP_OK;
}
