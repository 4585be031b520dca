/* name_dims.c - dimensions that are not known as numbers are known to be equal: their names go on
 * through products by matrices, sums, normalisations and lists of sizes. ONNX Runtime gives new
 * ones where it loses track. No node changes, so that nothing counts as a rewrite.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/name_dims.h"

#include "base/macros.h"
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/left_dims.h"
#include "graph/pass/window_dims.h"

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

/* ---- a size of -1 ---- */

/* What a Reshape's input has that its other sizes do not take: a number, and of the dimensions that
 * are not known a bit each. */
typedef struct rest {
    int64_t number;
    uint32_t unknown;
} rest;

static bool rest_of(const mp_shape *given, rest *out) {
    *out = (rest){.number = 1};
    for (int i = 0; i < given->rank; i++) {
        const bool known = given->dim[i] > 0;
        out->unknown |= known ? 0 : 1U << i;
        if (known && __builtin_mul_overflow(out->number, given->dim[i], &out->number)) {
            return false;
        }
    }
    return true;
}

/* Whether size `i` is one of the unknown dimensions, which it then takes. */
static bool takes_one(const mp_graph *graph, int32_t sizes, int i, int32_t x, rest *left) {
    for (int d = 0; d < graph->values[x].tensor.shape.rank; d++) {
        if ((left->unknown >> d & 1) != 0 && ((i == d && mp_graph_entry(graph, sizes, i) == 0) ||
                                              mp_graph_entry_is(graph, sizes, i, x, d))) {
            left->unknown &= ~(1U << d);
            return true;
        }
    }
    return false;
}

/* Dimension `d` of the result, of `rank`, whose size is -1. */
static int64_t what_is_left(const mp_graph *graph, int32_t x, int32_t sizes, int d, int rank) {
    const mp_shape *given = &graph->values[x].tensor.shape;
    int64_t taken = 1;
    rest left;
    if (!rest_of(given, &left)) {
        return MP_DIM_UNKNOWN;
    }
    for (int i = 0; i < rank; i++) {
        const int64_t size = i != d ? mp_graph_entry_dim(graph, sizes, i) : 1;
        if (size > 0 ? __builtin_mul_overflow(taken, size, &taken)
                     : !takes_one(graph, sizes, i, x, &left)) {
            return MP_DIM_UNKNOWN;
        }
    }
    if (left.unknown == 0) {
        return left.number % taken == 0 ? left.number / taken : MP_DIM_UNKNOWN;
    }
    const int one = __builtin_ctz(left.unknown);
    return left.number == taken && left.unknown == 1U << one ? given->dim[one] : MP_DIM_UNKNOWN;
}

/* ---- nodes ---- */

/* Dimension `d` of a Reshape's result, of `rank`. */
static int64_t dim_by_sizes(const mp_graph *graph, const mp_vertex *v, int d, int rank) {
    const int32_t x = v->in[0], sizes = v->in[1];
    if (mp_graph_entry(graph, sizes, d) == 0) {
        return is_known_rank(graph, x) && d < graph->values[x].tensor.shape.rank &&
                       mp_node_int(&v->node, "allowzero", 0) == 0
                   ? graph->values[x].tensor.shape.dim[d]
                   : MP_DIM_UNKNOWN;
    }
    return is_known_rank(graph, x) && mp_graph_entry_is_rest(graph, sizes, d)
               ? what_is_left(graph, x, sizes, d, rank)
               : mp_graph_entry_dim(graph, sizes, d);
}

/* Dimension `d` of the result, of `rank`, of a Gather of one index, which leaves out an axis, or of
 * an Unsqueeze, which adds one or more. */
static int64_t dim_moved(const mp_graph *graph, const mp_vertex *v, int d, int rank) {
    const mp_shape *given = &graph->values[v->in[0]].tensor.shape;
    int64_t axes[MP_RANK_MAX];
    int count = 0, before = 0;
    if (mp_vertex_is(v, "Gather")) {
        const int64_t axis = mp_node_int(&v->node, "axis", 0);
        const int64_t at = axis < 0 ? axis + given->rank : axis;
        return mp_graph_rank(graph, v->in[1]) == 0 && rank + 1 == given->rank
                   ? given->dim[d + (d >= at)]
                   : MP_DIM_UNKNOWN;
    }
    if (!mp_graph_ints(graph, v, "axes", 1, axes, &count) || given->rank + count != rank) {
        return MP_DIM_UNKNOWN;
    }
    for (int i = 0; i < count; i++) {
        const int64_t at = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (at == d) {
            return 1;
        }
        before += at < d;
    }
    return given->dim[d - before];
}

/* Dimension `d` of the first result, of `rank`, by what the node does. */
static int64_t dim_by(const mp_graph *graph, const mp_vertex *v, int d, int rank) {
    const int32_t x = v->in[0];
    if (mp_vertex_is(v, "Reshape") && v->in_count == 2) {
        return dim_by_sizes(graph, v, d, rank);
    }
    if (!is_known_rank(graph, x)) {
        return MP_DIM_UNKNOWN;
    }
    if (adds(v)) {
        return is_known_rank(graph, v->in[1])
                   ? broadcast(dim_back(graph, x, rank - d), dim_back(graph, v->in[1], rank - d))
                   : MP_DIM_UNKNOWN;
    }
    if (mp_takes_dims_out(v) || mp_walks_windows(v)) {
        return mp_walks_windows(v) ? mp_dim_of_windows(graph, v, d) : mp_dim_left(graph, v, d);
    }
    if (mp_vertex_is(v, "Gather") || mp_vertex_is(v, "Unsqueeze")) {
        return dim_moved(graph, v, d, rank);
    }
    const bool same_rank = graph->values[x].tensor.shape.rank == rank;
    if (same_rank && mp_vertex_is(v, "Slice")) {
        return mp_dim_of_slice(graph, v, d);
    }
    const mp_attr *perm = mp_vertex_is(v, "Transpose") ? mp_vertex_perm(v) : NULL;
    if (perm != NULL && same_rank && perm->count == (size_t)rank) {
        return graph->values[x].tensor.shape.dim[perm->ints[d]];
    }
    return same_rank && (mp_vertex_keeps_shape(v) || (is_product(graph, v) && d < rank - 1))
               ? graph->values[x].tensor.shape.dim[d]
               : MP_DIM_UNKNOWN;
}

/* Dimension `d` of the node's result `i`, as far as it is known. */
static int64_t found_dim(const mp_graph *graph, const mp_vertex *v, int i, int d) {
    const mp_shape *shape = &graph->values[v->out[i]].tensor.shape;
    const int64_t was = shape->dim[d], number = mp_graph_dim(graph, v->out[i], d);
    if (number > 0 || was > MP_DIM_UNKNOWN) {
        return number > 0 ? number : was;
    }
    const int64_t found = mp_vertex_is(v, "Split") ? mp_dim_of_split(graph, v, i, d)
                                                   : dim_by(graph, v, d, shape->rank);
    /* of two names the earlier one */
    return was == MP_DIM_UNKNOWN || (found != MP_DIM_UNKNOWN && found > was) ? found : was;
}

static void name_new(mp_graph *graph, int32_t value, int64_t *lowest) {
    mp_shape *shape = &graph->values[value].tensor.shape;
    for (int d = 0; d < shape->rank; d++) {
        shape->dim[d] = shape->dim[d] == MP_DIM_UNKNOWN ? --*lowest : shape->dim[d];
    }
}

void mp_name_inputs(mp_graph *graph, int64_t *lowest) {
    *lowest = MP_DIM_UNKNOWN;
    for (int32_t i = 0; i < graph->value_count; i++) {
        const mp_shape *shape = &graph->values[i].tensor.shape;
        for (int d = 0; d < shape->rank; d++) {
            *lowest = MP_MIN(*lowest, shape->dim[d]);
        }
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].producer == MP_NO_NODE) {
            name_new(graph, i, lowest);
        }
    }
}

void mp_name_dims(mp_graph *graph, int32_t n, int64_t *lowest) {
    const mp_vertex *v = &graph->nodes[n];
    const int known = mp_vertex_is(v, "Split") ? v->out_count : MP_MIN(v->out_count, 1);
    const bool reads = !v->is_gone && v->in_count > 0 && v->in[0] != MP_NO_VALUE;
    for (int i = 0; i < known && reads; i++) {
        mp_shape *shape = v->out[i] != MP_NO_VALUE ? &graph->values[v->out[i]].tensor.shape : NULL;
        for (int d = 0; shape != NULL && d < shape->rank; d++) {
            shape->dim[d] = found_dim(graph, v, i, d);
        }
    }
    for (int i = 0; i < v->out_count && !v->is_gone; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            name_new(graph, v->out[i], lowest);
        }
    }
}

mp_status mp_pass_name_dims(mp_graph *graph, mp_rewrites *rewrites) {
    int64_t lowest = 0;
    (void)rewrites;
    mp_name_inputs(graph, &lowest);
    for (int32_t n = 0; n < graph->node_count; n++) {
        mp_name_dims(graph, n, &lowest);
    }
    return MP_OK;
}
