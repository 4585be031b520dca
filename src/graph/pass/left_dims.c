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

/* Which of the axes of a Slice is dimension `d`; `*known` is false where that is not known. */
static int sliced_axis(const mp_graph *graph, const mp_vertex *v, int d, bool *known) {
    const int rank = given_shape(graph, v)->rank;
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    const bool said = mp_node_attr(&v->node, "axes") != NULL || mp_vertex_in(v, 3) != MP_NO_VALUE;
    *known = said ? mp_graph_ints(graph, v, "axes", 3, axes, &count)
                  : mp_graph_ints(graph, v, "starts", 1, axes, &count);
    for (int i = 0; i < count && *known; i++) {
        const int64_t axis = !said ? i : axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis == d) {
            return i;
        }
    }
    return -1;
}

int64_t mp_dim_of_slice(const mp_graph *graph, const mp_vertex *v, int d) {
    const int64_t size = given_shape(graph, v)->dim[d];
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX], step[MP_RANK_MAX] = {0};
    int starts = 0, ends = 0, steps = 0;
    bool known = false;
    const int i = sliced_axis(graph, v, d, &known);
    const bool stepped = mp_vertex_in(v, 4) != MP_NO_VALUE;
    if (!known || i < 0 || size < 0) {
        return known && i < 0 ? size : MP_DIM_UNKNOWN;
    }
    if (!mp_graph_ints(graph, v, "starts", 1, start, &starts) ||
        !mp_graph_ints(graph, v, "ends", 2, end, &ends) || i >= starts || i >= ends ||
        (stepped && (!mp_graph_ints(graph, v, "", 4, step, &steps) || i >= steps || step[i] < 1))) {
        return MP_DIM_UNKNOWN;
    }
    const int64_t from = start[i] < 0 ? MP_MAX(start[i] + size, 0) : MP_MIN(start[i], size);
    const int64_t to = end[i] < 0 ? MP_MAX(end[i] + size, 0) : MP_MIN(end[i], size);
    return to <= from ? 0 : stepped ? (to - from - 1) / step[i] + 1 : to - from;
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
