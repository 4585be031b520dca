/* identity.c - nodes that give what they get: Identity, Dropout of inference, a Cast to the type
 * that is there, a Transpose that leaves all dimensions where they are, a Pad by nothing, a Slice
 * of everything, a Concat of something and nothing, a ScatterND that puts all elements in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

static bool keeps_order(const mp_vertex *v) {
    const mp_attr *perm = mp_node_attr(&v->node, "perm");
    for (size_t i = 0; perm != NULL && i < perm->count; i++) {
        if (perm->ints[i] != (int64_t)i) {
            return false;
        }
    }
    return perm != NULL;
}

static bool keeps_type(const mp_graph *graph, const mp_vertex *v) {
    const mp_dtype from = graph->values[v->in[0]].tensor.type;
    return from != MP_NONE && (int64_t)from == mp_node_int(&v->node, "to", 0);
}

/* Of versions 7 and 10, whose rows have no training; later ones may be told to train. */
static bool is_dropout_of_inference(const mp_vertex *v) {
    return mp_vertex_is(v, "Dropout") && !v->node.op->draws &&
           (v->out_count < 2 || v->out[1] == MP_NO_VALUE);
}

static bool pads_nothing(const mp_graph *graph, const mp_vertex *v) {
    int64_t pads[MP_RANK_MAX];
    int count = 0;
    if (!mp_graph_ints(graph, v, "pads", 1, pads, &count)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (pads[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool slices_nothing_off(const mp_graph *graph, const mp_vertex *v) {
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX], axis[MP_RANK_MAX], step[MP_RANK_MAX];
    int starts = 0, ends = 0, axes = 0, steps = 0;
    const bool has_steps = mp_vertex_in(v, 4) != MP_NO_VALUE;
    if (!mp_graph_ints(graph, v, "starts", 1, start, &starts) ||
        !mp_graph_ints(graph, v, "ends", 2, end, &ends) ||
        !mp_graph_ints(graph, v, "axes", 3, axis, &axes) || ends != starts || axes != starts ||
        (has_steps && (!mp_graph_ints(graph, v, "", 4, step, &steps) || steps != starts))) {
        return false;
    }
    for (int i = 0; i < starts; i++) {
        const int64_t dim = axis[i] >= -MP_RANK_MAX && axis[i] < MP_RANK_MAX
                                ? mp_graph_dim(graph, v->in[0], (int)axis[i])
                                : MP_DIM_UNKNOWN;
        const bool to_end = end[i] >= INT32_MAX || (dim >= 0 && end[i] >= dim);
        if (start[i] != 0 || !to_end || (has_steps && step[i] != 1)) {
            return false;
        }
    }
    return true;
}

/* The only input of a Concat that is not known to be empty along its axis; or -1. */
static int only_part(const mp_graph *graph, const mp_vertex *v) {
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    int only = -1;
    for (int i = 0; i < v->in_count; i++) {
        const bool fits = axis >= -MP_RANK_MAX && axis < MP_RANK_MAX;
        if (fits && mp_graph_dim(graph, v->in[i], (int)axis) == 0) {
            continue;
        }
        if (only >= 0 || v->in[i] == MP_NO_VALUE) {
            return -1;
        }
        only = i;
    }
    return only;
}

/* Whether the places of a ScatterND are all there are in what it changes, one behind the other, as
 * torch writes what it adds to all of a tensor. */
static bool scatters_all(const mp_graph *graph, const mp_vertex *v) {
    const mp_tensor *places = mp_graph_constant(graph, v->in[1]);
    const mp_shape *shape = places != NULL ? &places->shape : NULL;
    const int rank = mp_graph_rank(graph, v->in[0]);
    if (strcmp(mp_node_string(&v->node, "reduction", "none"), "none") != 0 || shape == NULL ||
        places->data == 0 || places->type != MP_I64 || shape->rank < 2 || shape->rank > rank + 1 ||
        !mp_graph_same_shape(graph, v->in[0], v->in[2]) ||
        shape->dim[shape->rank - 1] != shape->rank - 1) {
        return false;
    }
    const int indexes = shape->rank - 1;
    for (int d = 0; d < indexes; d++) {
        if (shape->dim[d] != mp_graph_dim(graph, v->in[0], d)) {
            return false;
        }
    }
    const int64_t *index = (const int64_t *)places->data;
    int64_t next[MP_RANK_MAX] = {0};
    for (int64_t left = mp_shape_span(shape, 0, indexes); left > 0; left--) {
        if (memcmp(index, next, (size_t)indexes * sizeof *next) != 0) {
            return false;
        }
        index += indexes;
        for (int d = indexes - 1; d >= 0 && ++next[d] == shape->dim[d] && d > 0; d--) {
            next[d] = 0;
        }
    }
    return true;
}

/* Which of its inputs the node gives; or -1. */
static int given_back(const mp_graph *graph, const mp_vertex *v) {
    if (v->in_count < 1 || v->in[0] == MP_NO_VALUE || v->out_count < 1 ||
        v->out[0] == MP_NO_VALUE) {
        return -1;
    }
    if (mp_vertex_is(v, "Concat")) {
        return only_part(graph, v);
    }
    if (mp_vertex_is(v, "ScatterND")) {
        return scatters_all(graph, v) ? 2 : -1;
    }
    const bool gives = mp_vertex_is(v, "Identity") || is_dropout_of_inference(v) ||
                       (mp_vertex_is(v, "Cast") && keeps_type(graph, v)) ||
                       (mp_vertex_is(v, "Transpose") && keeps_order(v)) ||
                       (mp_vertex_is(v, "Pad") && pads_nothing(graph, v)) ||
                       (mp_vertex_is(v, "Slice") && slices_nothing_off(graph, v));
    return gives ? 0 : -1;
}

mp_status mp_pass_identity(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        /* An output of the graph has a name of its own, and a copy. */
        const int given = v->is_gone ? -1 : given_back(graph, v);
        if (given < 0 || mp_graph_is_output(graph, v->out[0]) || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        const mp_vertex was = *v;
        mp_graph_replace(graph, was.out[0], was.in[given], false);
        mp_graph_remove_node(graph, n);
        mp_graph_drop_inputs(graph, &was);
    }
    return MP_OK;
}
