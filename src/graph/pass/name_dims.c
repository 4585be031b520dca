/* name_dims.c - dimensions that are not known as numbers are known to be equal: their names go on
 * through products by matrices, sums, normalisations and lists of sizes. ONNX Runtime gives new
 * ones where it loses track. No node changes, so that nothing counts as a rewrite.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

/* From the end: dimension `back` counts from 1. */
static int64_t dim_back(const mp_graph *graph, int32_t value, int back) {
    const mp_shape *shape = &graph->values[value].tensor.shape;
    return back <= shape->rank ? shape->dim[shape->rank - back] : 1;
}

static int64_t broadcast(int64_t a, int64_t b) {
    return a == b || b == 1 ? a : a == 1 ? b : MP_DIM_UNKNOWN;
}

static bool is_known_rank(const mp_graph *graph, int32_t value) {
    return value != MP_NO_VALUE && graph->values[value].tensor.shape.rank >= 0;
}

static bool adds(const mp_vertex *v) {
    return v->in_count == 2 && (mp_vertex_is(v, "Add") || mp_vertex_is(v, "Sub") ||
                                mp_vertex_is(v, "Mul") || mp_vertex_is(v, "Div"));
}

/* By a matrix: all dimensions but the last stay. */
static bool is_product(const mp_graph *graph, const mp_vertex *v) {
    return mp_vertex_is_own(v, "MatMulBias") || strcmp(v->node.op->name, "MatMulNBits") == 0 ||
           (mp_vertex_is(v, "MatMul") && mp_graph_rank(graph, v->in[1]) == 2);
}

/* Dimension `d` of the result, of `rank`, by what the node does. */
static int64_t dim_by(const mp_graph *graph, const mp_vertex *v, int d, int rank) {
    const int32_t x = v->in[0];
    if (mp_vertex_is(v, "Reshape") && v->in_count == 2) {
        const bool copies = mp_graph_entry(graph, v->in[1], d) == 0;
        return !copies ? mp_graph_entry_dim(graph, v->in[1], d) : MP_DIM_UNKNOWN;
    }
    if (!is_known_rank(graph, x)) {
        return MP_DIM_UNKNOWN;
    }
    if (adds(v)) {
        return is_known_rank(graph, v->in[1])
                   ? broadcast(dim_back(graph, x, rank - d), dim_back(graph, v->in[1], rank - d))
                   : MP_DIM_UNKNOWN;
    }
    const bool same_rank = graph->values[x].tensor.shape.rank == rank;
    return same_rank && (mp_vertex_keeps_shape(v) || (is_product(graph, v) && d < rank - 1))
               ? graph->values[x].tensor.shape.dim[d]
               : MP_DIM_UNKNOWN;
}

mp_status mp_pass_name_dims(mp_graph *graph, mp_rewrites *rewrites) {
    (void)rewrites;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t y = mp_vertex_out(v, 0);
        if (v->is_gone || y == MP_NO_VALUE || v->in_count == 0 || v->in[0] == MP_NO_VALUE) {
            continue;
        }
        mp_shape *shape = &graph->values[y].tensor.shape;
        for (int d = 0; d < shape->rank; d++) {
            const int64_t was = shape->dim[d];
            const int64_t found = was <= MP_DIM_UNKNOWN ? dim_by(graph, v, d, shape->rank) : was;
            if (was == MP_DIM_UNKNOWN || (found != MP_DIM_UNKNOWN && found > was)) {
                shape->dim[d] = found; /* of two names the earlier one */
            }
        }
    }
    return MP_OK;
}
