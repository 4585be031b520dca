/* left_dims.c - see left_dims.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/left_dims.h"

#include "base/macros.h"
#include "graph/look.h"

static const mp_shape *given_shape(const mp_graph *graph, const mp_vertex *v) {
    return &graph->values[v->in[0]].tensor.shape;
}

int64_t mp_dim_of_split(const mp_graph *graph, const mp_vertex *v, int i, int d) {
    const mp_shape *given = given_shape(graph, v);
    int64_t axis = mp_node_int(&v->node, "axis", 0), sizes[MP_RANK_MAX];
    int count = 0;
    axis += axis < 0 ? given->rank : 0;
    if (d >= given->rank || d != axis) {
        return d < given->rank ? given->dim[d] : MP_DIM_UNKNOWN;
    }
    if (mp_graph_ints(graph, v, "split", 1, sizes, &count)) {
        return i < count ? sizes[i] : MP_DIM_UNKNOWN;
    }
    return mp_vertex_in(v, 1) == MP_NO_VALUE && given->dim[d] > 0 &&
                   given->dim[d] % v->out_count == 0
               ? given->dim[d] / v->out_count
               : MP_DIM_UNKNOWN;
}

bool mp_takes_dims_out(const mp_vertex *v) {
    static const char *const reduces[] = {"ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"};
    return mp_vertex_is(v, "Squeeze") || (mp_vertex_is_any(v, reduces, MP_COUNT_OF(reduces)) &&
                                          mp_node_int(&v->node, "keepdims", 1) == 0);
}

int64_t mp_dim_left(const mp_graph *graph, const mp_vertex *v, int d) {
    const mp_shape *given = given_shape(graph, v);
    int64_t axes[MP_RANK_MAX];
    uint32_t gone = 0;
    int count = 0;
    if (!mp_graph_ints(graph, v, "axes", 1, axes, &count) || count == 0) {
        return MP_DIM_UNKNOWN;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + given->rank : axes[i];
        gone |= axis >= 0 && axis < given->rank ? 1U << axis : 0;
    }
    for (int at = 0; at < given->rank; at++) {
        if ((gone >> at & 1) == 0 && d-- == 0) {
            return given->dim[at];
        }
    }
    return MP_DIM_UNKNOWN;
}
