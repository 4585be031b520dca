/* window_dims.c - see window_dims.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/window_dims.h"

#include "graph/look.h"

#include <string.h>

enum { CHANNEL = 1, SPACE = 2, SIZE_MAX_KNOWN = 1 << 30 };

bool mp_walks_windows(const mp_vertex *v) {
    const bool pools = mp_vertex_is(v, "AveragePool") || mp_vertex_is(v, "MaxPool");
    return (pools || mp_vertex_is(v, "Conv")) &&
           strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") == 0 &&
           mp_node_int(&v->node, "ceil_mode", 0) == 0;
}

/* Element `i` of a list of numbers, each up to some size that nothing overflows by; -1 of others.
 */
static int64_t number_at(const mp_vertex *v, const char *name, int i, int64_t otherwise) {
    const mp_attr *list = mp_node_attr(&v->node, name);
    if (list == NULL || list->kind != MP_ATTR_INTS) {
        return list == NULL ? otherwise : -1;
    }
    return (size_t)i < list->count && list->ints[i] <= SIZE_MAX_KNOWN ? list->ints[i] : -1;
}

int64_t mp_dim_of_windows(const mp_graph *graph, const mp_vertex *v, int d) {
    const mp_shape *given = &graph->values[v->in[0]].tensor.shape;
    const bool pools = !mp_vertex_is(v, "Conv");
    if (d >= given->rank || (d == CHANNEL && !pools)) {
        return d < given->rank ? mp_graph_dim(graph, mp_vertex_in(v, 1), 0) : MP_DIM_UNKNOWN;
    }
    if (d < SPACE) {
        return given->dim[d];
    }
    const int i = d - SPACE;
    const int64_t all = pools ? -1 : mp_graph_dim(graph, mp_vertex_in(v, 1), d);
    const int64_t window = number_at(v, "kernel_shape", i, all);
    const int64_t step = number_at(v, "strides", i, 1);
    const int64_t spread = number_at(v, "dilations", i, 1);
    const int64_t before = number_at(v, "pads", i, 0);
    const int64_t behind = number_at(v, "pads", i + given->rank - SPACE, 0);
    if (given->dim[d] <= 0 || given->dim[d] > SIZE_MAX_KNOWN || window <= 0 || step <= 0 ||
        spread <= 0 || before < 0 || behind < 0) {
        return MP_DIM_UNKNOWN;
    }
    const int64_t left = given->dim[d] + before + behind - spread * (window - 1) - 1;
    return left >= 0 ? left / step + 1 : MP_DIM_UNKNOWN;
}
