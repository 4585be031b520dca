/* unflatten.c - a product of rows that had more dimensions before is a product of these.
 *
 *     Reshape to [all rows, elements] --> Gemm or MatMul --> Reshape to anything
 *
 * ONNX Runtime makes a Gemm of a MatMul and an Add where shapes are known, other tools do, too,
 * some with the matrix transposed, and TensorFlow writes products of more than two dimensions so.
 * What later passes look for stands between the two in other models, and nothing does here.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/rows_back.h"
#include "graph/pass/swapped.h"

#include <string.h>

enum { RANK_MIN = 3, TURNED_MAX = 64 << 20 /* bytes of a matrix that is there transposed */ };

static const mp_tensor *constant_at(const mp_graph *graph, const mp_vertex *v, int i, int rank) {
    const mp_tensor *x = mp_graph_constant(graph, mp_vertex_in(v, i));
    return x != NULL && x->shape.rank == rank ? x : NULL;
}

/* A constant row; an exporter leaves out one of zeros. */
static bool has_bias(const mp_vertex *v) {
    return mp_vertex_in(v, 2) != MP_NO_VALUE;
}

static bool is_turned(const mp_vertex *v) {
    return mp_node_int(&v->node, "transB", 0) != 0;
}

/* Whether a transposed matrix may be there as the product wants it: by then nobody needs it as it
 * is. */
static bool may_turn(const mp_graph *graph, int32_t matrix) {
    size_t size = 0;
    return graph->values[matrix].tensor.data != 0 && mp_graph_uses(graph, matrix) == 1 &&
           mp_graph_bytes(graph, matrix, &size) == MP_OK && size <= TURNED_MAX;
}

/* Of a constant matrix and a constant row, if one. */
static bool is_wanted(const mp_graph *graph, const mp_vertex *v) {
    if (mp_vertex_is(v, "MatMul")) {
        return constant_at(graph, v, 1, 2) != NULL && mp_graph_rank(graph, v->in[0]) == 2;
    }
    const mp_tensor *matrix = mp_vertex_is(v, "Gemm") ? constant_at(graph, v, 1, 2) : NULL;
    const mp_tensor *row = matrix != NULL && has_bias(v) ? constant_at(graph, v, 2, 1) : NULL;
    const bool fits = row != NULL ? row->type == matrix->type &&
                                        row->shape.dim[0] == matrix->shape.dim[!is_turned(v)]
                                  : matrix != NULL && !has_bias(v);
    return fits && (!is_turned(v) || may_turn(graph, v->in[1])) &&
           mp_node_int(&v->node, "transA", 0) == 0 && mp_node_float(&v->node, "alpha", 1) == 1 &&
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

/* Whether a Reshape gives the same if it reads rows as `x` has them: what it asks for are numbers,
 * and dimensions of `x` at their places. */
static bool asks_for_no_dimension(const mp_graph *graph, const mp_vertex *reshape, int32_t x) {
    const int32_t list = reshape->in[1];
    const int64_t count = mp_graph_list_length(graph, list);
    for (int64_t d = 0; d < count; d++) {
        const int64_t entry = mp_graph_entry(graph, list, (int)d);
        if (entry < 1 && !mp_graph_entry_is_rest(graph, list, (int)d) &&
            !(d < mp_graph_rank(graph, x) - 1 &&
              mp_graph_entry_is(graph, list, (int)d, x, (int)d))) {
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

/* Rows of more than three dimensions, and how they were seen last, which Q, K and V have in common.
 */
typedef struct seen {
    int32_t of, view;
    int64_t dim[RANK_MIN];
} seen;

/* Where they become [batch, rows, heads, size] behind the product: what they were before, seen as
 * [batch, rows, elements], which is what heads are looked for in. */
static mp_status see_rows(mp_graph *graph, int32_t n, int32_t result, int64_t columns,
                          int64_t elements, seen *last, int32_t *x) {
    const int64_t heads = mp_graph_dim(graph, result, RANK_MIN - 1);
    const int64_t dim[RANK_MIN] = {mp_graph_dim(graph, result, 0), mp_graph_dim(graph, result, 1),
                                   elements};
    if (mp_graph_rank(graph, *x) <= RANK_MIN || mp_graph_rank(graph, result) != RANK_MIN + 1 ||
        dim[0] <= 0 || dim[1] <= 0 || heads <= 0 ||
        heads * mp_graph_dim(graph, result, RANK_MIN) != columns) {
        return MP_OK;
    }
    if (last->of != *x || memcmp(last->dim, dim, sizeof dim) != 0) {
        last->of = MP_NO_VALUE;
        MP_TRY(mp_graph_add_view(graph, n, graph->values[*x].name, "Reshape", *x, dim, RANK_MIN,
                                 &last->view));
        last->of = *x;
        memcpy(last->dim, dim, sizeof dim);
    }
    *x = last->view;
    return MP_OK;
}

/* The matrix as the product wants it. */
static mp_status turn(mp_graph *graph, const mp_vertex *gemm, int32_t *matrix) {
    const mp_shape *was = &graph->values[*matrix].tensor.shape;
    const mp_shape shape = {.rank = 2, .dim = {was->dim[1], was->dim[0]}};
    return is_turned(gemm)
               ? mp_graph_add_swapped(graph, *matrix, shape.dim[0], shape.dim[1], &shape, matrix)
               : MP_OK;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t behind, int32_t x, seen *last) {
    const mp_vertex gemm = graph->nodes[n];
    const mp_vertex reshape = graph->nodes[behind];
    const int64_t columns = graph->values[gemm.in[1]].tensor.shape.dim[!is_turned(&gemm)];
    const int64_t elements = graph->values[gemm.in[1]].tensor.shape.dim[is_turned(&gemm)];
    MP_TRY(see_rows(graph, n, reshape.out[0], columns, elements, last, &x));
    const bool goes = mp_rows_are_back(graph, reshape.out[0], x, columns) ||
                      asks_for_rows(graph, &reshape, x, columns);
    const bool biased = has_bias(&gemm);
    const int version = biased ? 1 : 13;
    const mp_node node = {.op = biased ? mp_op_find(MP_OWN_DOMAIN, "MatMulBias", version)
                                       : mp_op_find("", "MatMul", version),
                          .version = version,
                          .name = gemm.node.name,
                          .options = gemm.node.options};
    int32_t in[] = {x, gemm.in[1], mp_vertex_in(&gemm, 2)};
    int32_t out = reshape.out[0];
    MP_TRY(turn(graph, &gemm, &in[1]));
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
    const int32_t count = graph->node_count;
    seen last = {.of = MP_NO_VALUE};
    for (int32_t n = 0; n < count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!is_wanted(graph, v)) {
            continue;
        }
        const int64_t elements = graph->values[v->in[1]].tensor.shape.dim[is_turned(v)];
        const int32_t x = before_rows(graph, v->in[0], elements);
        const int32_t behind =
            x != MP_NO_VALUE ? mp_graph_reader(graph, v->out[0], "Reshape") : MP_NO_NODE;
        if (behind == MP_NO_NODE || graph->nodes[behind].in_count != 2) {
            continue;
        }
        const mp_vertex *reshape = &graph->nodes[behind];
        const int64_t columns = graph->values[v->in[1]].tensor.shape.dim[!is_turned(v)];
        if ((asks_for_no_dimension(graph, reshape, x) ||
             asks_for_rows(graph, reshape, x, columns)) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, behind, x, &last));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
