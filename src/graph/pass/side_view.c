/* side_view.c - see side_view.h.
 *
 * Goes up through nodes that give elements of what they read, then down again from there: each node
 * changes dimensions and strides. Where a Reshape cannot, its result is the base from there on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/side_view.h"

#include <string.h>

enum { CHAIN_MAX = 12 };

typedef mp_side_view view;

/* What is known of the dimensions: all, or all but the first, which is then 0. */
static bool read_dims(const mp_graph *graph, int32_t value, int *rank, int64_t *dim) {
    *rank = mp_graph_rank(graph, value);
    for (int d = 0; d < *rank && *rank <= MP_VIEW_RANK; d++) {
        const int64_t known = mp_graph_dim(graph, value, d);
        if (known == 0 || (known < 0 && d > 0)) {
            return false;
        }
        dim[d] = MP_MAX(known, 0);
    }
    return *rank >= 1 && *rank <= MP_VIEW_RANK;
}

/* All of a value, in its own order, or one entry of it. */
static bool begin(const mp_graph *graph, int32_t value, view *v) {
    *v = (view){.base = value, .of_base = 1};
    if (!read_dims(graph, value, &v->rank, v->dim)) {
        return false;
    }
    v->is_entry = v->dim[0] == 0;
    v->dim[0] = v->is_entry ? 1 : v->dim[0];
    for (int d = v->rank - 1; d >= 0; d--) {
        v->stride[d] = v->of_base;
        if (__builtin_mul_overflow(v->of_base, v->dim[d], &v->of_base)) {
            return false;
        }
    }
    return true;
}

/* ---- one node ---- */

/* Other dimensions, as many elements: runs of the old ones that are walked as one are taken apart
 * again. */
static bool reshape(view *v, int rank, const int64_t *dim) {
    int64_t stride[MP_VIEW_RANK];
    int64_t step = v->stride[v->rank - 1], old = 1, fresh = 1;
    int at = rank - 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        old *= v->dim[d];
        if (d > 0 && (v->dim[d - 1] == 1 || v->stride[d - 1] == old * step)) {
            continue;
        }
        while (at >= 0 && (fresh < old || dim[at] == 1)) {
            stride[at] = fresh * step;
            fresh *= dim[at--];
        }
        if (fresh != old) {
            return false;
        }
        step = d > 0 ? v->stride[d - 1] : 0;
        old = fresh = 1;
    }
    v->rank = rank;
    memcpy(v->dim, dim, (size_t)rank * sizeof *dim);
    memcpy(v->stride, stride, (size_t)rank * sizeof *stride);
    return at < 0;
}

static bool transpose(const mp_vertex *node, view *v) {
    const mp_attr *perm = mp_vertex_perm(node);
    const view was = *v;
    if (perm == NULL || perm->count != (size_t)v->rank || (v->is_entry && perm->ints[0] != 0)) {
        return false;
    }
    for (int d = 0; d < v->rank; d++) {
        v->dim[d] = was.dim[perm->ints[d]];
        v->stride[d] = was.stride[perm->ints[d]];
    }
    return true;
}

/* Entries that are not counted are not taken apart. */
static int first_axis(const view *v) {
    return v->is_entry ? 1 : 0;
}

/* One index of an axis, which goes. */
static bool gather(const mp_graph *graph, const mp_vertex *node, view *v) {
    int64_t index[MP_RANK_MAX];
    int count = 0;
    int64_t axis = mp_node_int(&node->node, "axis", 0);
    axis += axis < 0 ? v->rank : 0;
    if (mp_graph_rank(graph, node->in[1]) != 0 ||
        !mp_graph_ints(graph, node, "", 1, index, &count) || count != 1 || axis < first_axis(v) ||
        axis >= v->rank || v->rank < 2 || index[0] < -v->dim[axis] || index[0] >= v->dim[axis]) {
        return false;
    }
    v->first += (index[0] < 0 ? index[0] + v->dim[axis] : index[0]) * v->stride[axis];
    v->rank--;
    for (int d = (int)axis; d < v->rank; d++) {
        v->dim[d] = v->dim[d + 1];
        v->stride[d] = v->stride[d + 1];
    }
    return true;
}

static bool split(const mp_graph *graph, const mp_vertex *node, int32_t value, view *v) {
    int64_t axis = mp_node_int(&node->node, "axis", 0);
    int64_t before = 0;
    axis += axis < 0 ? v->rank : 0;
    for (int i = 0; i < node->out_count && axis >= first_axis(v) && axis < v->rank; i++) {
        const int64_t length = node->out[i] != MP_NO_VALUE
                                   ? mp_graph_dim(graph, node->out[i], (int)axis)
                                   : MP_DIM_UNKNOWN;
        if (length <= 0 || length > v->dim[axis] - before) {
            return false;
        }
        if (node->out[i] == value) {
            v->first += before * v->stride[axis];
            v->dim[axis] = length;
            return true;
        }
        before += length;
    }
    return false;
}

/* Along any axes, in steps of one. */
static bool slice(const mp_graph *graph, const mp_vertex *node, int32_t value, view *v) {
    int64_t start[MP_RANK_MAX], axis[MP_RANK_MAX], step[MP_RANK_MAX], dim[MP_VIEW_RANK];
    int starts = 0, axes = 0, steps = 0, rank = 0;
    const bool has_steps = mp_vertex_in(node, 4) != MP_NO_VALUE;
    if (!mp_graph_ints(graph, node, "starts", 1, start, &starts) ||
        !mp_graph_ints(graph, node, "axes", 3, axis, &axes) || axes != starts ||
        (has_steps && (!mp_graph_ints(graph, node, "", 4, step, &steps) || steps != starts)) ||
        !read_dims(graph, value, &rank, dim) || rank != v->rank) {
        return false;
    }
    for (int i = 0; i < starts; i++) {
        const int64_t d = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (d < first_axis(v) || d >= rank || dim[d] == 0 || (has_steps && step[i] != 1)) {
            return false;
        }
        const int64_t from = start[i] < 0 ? start[i] + v->dim[d] : start[i];
        if (from < 0 || from > v->dim[d] - dim[d]) {
            return false;
        }
        v->first += from * v->stride[d];
        v->dim[d] = dim[d];
    }
    return true;
}

/* ---- the chain ---- */

static bool is_shape(const mp_vertex *v) {
    return mp_vertex_is(v, "Reshape") || mp_vertex_is(v, "Squeeze") || mp_vertex_is(v, "Unsqueeze");
}

static bool moves(const mp_vertex *v) {
    return mp_vertex_is(v, "Transpose") || mp_vertex_is(v, "Gather") || mp_vertex_is(v, "Split") ||
           mp_vertex_is(v, "Slice");
}

/* Of dimensions of which the first may not be known, that one: what is left of the view's elements.
 */
static bool complete(const view *v, int rank, int64_t *dim) {
    int64_t all = 1, others = 1;
    for (int d = 0; d < v->rank; d++) {
        all *= v->dim[d]; /* no more than the base has */
    }
    for (int d = 1; d < rank; d++) {
        if (__builtin_mul_overflow(others, dim[d], &others)) {
            return false;
        }
    }
    if (dim[0] > 0) {
        return !v->is_entry;
    }
    dim[0] = all / others;
    return all % others == 0;
}

/* What `v` is of becomes what `value` is of, made by this node. */
static bool pass_node(const mp_graph *graph, const mp_vertex *node, int32_t value, view *v) {
    int64_t dim[MP_VIEW_RANK];
    int rank = 0;
    if (is_shape(node)) {
        return read_dims(graph, value, &rank, dim) && complete(v, rank, dim) &&
               reshape(v, rank, dim);
    }
    v->moves = true;
    return mp_vertex_is(node, "Transpose") ? transpose(node, v)
           : mp_vertex_is(node, "Gather")  ? gather(graph, node, v)
           : mp_vertex_is(node, "Slice")   ? slice(graph, node, value, v)
                                           : split(graph, node, value, v);
}

bool mp_side_view_find(const mp_graph *graph, int32_t value, mp_side_view *out) {
    int32_t chain[CHAIN_MAX];
    int length = 0;
    int32_t top = value;
    while (length < CHAIN_MAX) {
        const int32_t n = mp_graph_maker(graph, top, NULL);
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        if (v == NULL || (!is_shape(v) && !moves(v)) || v->in_count < 1) {
            break;
        }
        chain[length++] = top;
        top = v->in[0];
    }
    bool known = length > 0 && begin(graph, top, out);
    while (length-- > 0) {
        const mp_vertex *v = &graph->nodes[graph->values[chain[length]].producer];
        if (!known || !pass_node(graph, v, chain[length], out)) {
            known = begin(graph, chain[length], out);
        }
    }
    return known;
}
