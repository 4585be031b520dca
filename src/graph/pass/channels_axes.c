/* channels_axes.c - see channels_axes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_axes.h"

#include "graph/look.h"
#include "graph/pass/channels_constant.h"
#include "graph/pass/channels_conv.h"

#include <string.h>

enum { ATTRS_MAX = 16 };

/* ---- Concat, Split, ShuffleParts and a Softmax of channels: one axis, an attribute ---- */

/* Along the channels of an image, of a version that knows no other rows. */
static bool is_of_channels(const mp_vertex *v) {
    return mp_vertex_is(v, "Softmax") && v->node.version >= 13 &&
           mp_node_int(&v->node, "axis", -1) == 1;
}

static bool has_axis(const mp_vertex *v) {
    return mp_vertex_is(v, "Concat") || mp_vertex_is(v, "Split") || is_of_channels(v) ||
           mp_vertex_is_own(v, "ShuffleParts");
}

/* Whether a convolution that reads what the node makes wants the twin of that. */
static bool is_wanted(const mp_layout *l, const mp_vertex *maker) {
    for (int32_t n = 0; n < l->graph->node_count; n++) {
        const mp_vertex *v = &l->graph->nodes[n];
        const bool wants =
            !v->is_gone && mp_last_conv_op(v) != NULL && v->guard == 0 && mp_wants_last(l, v);
        for (int i = 0; wants && i < maker->out_count; i++) {
            if (v->in[0] == maker->out[i]) {
                return true;
            }
        }
    }
    return false;
}

/* All parts that are joined have twins of as many dimensions, are constants, or are turned for a
 * convolution that would have all of them turned otherwise. */
static bool has_parts(const mp_layout *l, const mp_vertex *v, int rank) {
    bool turns = false;
    for (int i = 0; i < v->in_count; i++) {
        if (v->in[i] == MP_NO_VALUE || mp_graph_rank(l->graph, v->in[i]) != rank) {
            return false;
        }
        turns =
            turns || (mp_twin_rank(l, v->in[i]) != rank && !mp_is_twin_constant(l, v->in[i], rank));
    }
    return !turns || is_wanted(l, v);
}

static int rank_along(const mp_layout *l, const mp_vertex *v) {
    return mp_vertex_is(v, "Split") ? mp_twin_rank(l, mp_vertex_in(v, 0)) : mp_twins_rank(l, v);
}

static bool is_along_axis(const mp_layout *l, const mp_vertex *v) {
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    const int rank = rank_along(l, v);
    return rank != 0 && axis >= -rank && axis < rank &&
           (mp_vertex_is(v, "Split") || mp_vertex_is(v, "Softmax") || has_parts(l, v, rank));
}

/* ---- several axes, an input or an attribute ---- */

/* Where such a node has its axes. */
typedef struct axes {
    int input;
    int count;
    int64_t of_image[MP_RANK_MAX], of_twin[MP_RANK_MAX];
} axes;

static bool is_reduction(const mp_vertex *v) {
    static const char *const names[] = {
        "ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
        "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

static bool is_listed(const mp_vertex *v, const axes *a) {
    return mp_node_attr(&v->node, "axes") != NULL || mp_vertex_in(v, a->input) != MP_NO_VALUE;
}

/* Without a list, those of a Slice are as many as it has starts, the first ones. */
static bool first_axes(const mp_layout *l, const mp_vertex *v, int rank, axes *a) {
    int64_t starts[MP_RANK_MAX];
    if (!mp_graph_ints(l->graph, v, "starts", 1, starts, &a->count) || a->count > rank) {
        return false;
    }
    for (int i = 0; i < a->count; i++) {
        a->of_image[i] = i;
    }
    return true;
}

/* False where they are not known. */
static bool read_axes(const mp_layout *l, const mp_vertex *v, int rank, axes *a) {
    *a = (axes){.input = mp_vertex_is(v, "Slice") || mp_vertex_is(v, "Pad") ? 3 : 1};
    const bool known = is_listed(v, a)
                           ? mp_graph_ints(l->graph, v, "axes", a->input, a->of_image, &a->count)
                           : mp_vertex_is(v, "Slice") && first_axes(l, v, rank, a);
    for (int i = 0; known && i < a->count; i++) {
        const int64_t axis = a->of_image[i] < 0 ? a->of_image[i] + rank : a->of_image[i];
        if (axis < 0 || axis >= rank) {
            return false;
        }
        a->of_twin[i] = mp_to_first(rank)[axis];
    }
    return known && a->count > 0;
}

/* Whether what a reduction leaves, without the dimensions that go, is in the same order of both. */
static bool leaves_order(const axes *a, int rank) {
    bool goes[MP_RANK_MAX] = {false};
    int spatial = 0;
    for (int i = 0; i < a->count; i++) {
        goes[a->of_twin[i]] = true;
    }
    for (int d = 1; d < rank - 1; d++) {
        spatial += !goes[d];
    }
    return goes[rank - 1] || spatial == 0;
}

/* A list of padding for all dimensions, in the order of the image. */
static bool pads_all(const mp_layout *l, const mp_vertex *v) {
    return mp_vertex_is(v, "Pad") && v->node.version >= 11 && mp_vertex_in(v, 3) == MP_NO_VALUE &&
           mp_graph_is_planned(l->graph, v->in[1]);
}

static bool is_along_axes(const mp_layout *l, const mp_vertex *v) {
    const int rank = mp_twin_rank(l, mp_vertex_in(v, 0));
    axes a;
    if (rank == 0 || v->out_count != 1) {
        return false;
    }
    if (is_reduction(v)) {
        return read_axes(l, v, rank, &a) &&
               (mp_node_int(&v->node, "keepdims", 1) != 0 || leaves_order(&a, rank));
    }
    return pads_all(l, v) || ((mp_vertex_is(v, "Pad") || mp_vertex_is(v, "Slice")) &&
                              v->node.version >= 10 && read_axes(l, v, rank, &a));
}

bool mp_has_axes(const mp_layout *l, const mp_vertex *v) {
    return v->node.attr_count < ATTRS_MAX &&
           (has_axis(v) ? is_along_axis(l, v) : is_along_axes(l, v));
}

/* ---- turning ---- */

/* The attributes but this one, in whose place others can be added. */
static size_t copy_attrs(const mp_node *node, const char *without, mp_attr *attrs) {
    size_t count = 0;
    for (size_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, without) != 0) {
            attrs[count++] = node->attrs[i];
        }
    }
    return count;
}

static mp_status turn_part(mp_layout *l, int32_t value, int rank, int32_t *out) {
    return mp_twin_rank(l, value) != rank && mp_is_twin_constant(l, value, rank)
               ? mp_twin_constant(l, value, rank, out)
               : mp_twin_need(l, value, rank, out);
}

static mp_status turn_axis(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    mp_attr attrs[ATTRS_MAX];
    const int64_t axis = mp_node_int(&v.node, "axis", 0);
    const int rank = rank_along(l, &v);
    int32_t in[MP_TWIN_WIDTH_MAX];
    mp_node node = v.node;
    node.attrs = attrs;
    node.attr_count = copy_attrs(&v.node, "axis", attrs);
    attrs[node.attr_count++] = (mp_attr){
        .name = "axis", .kind = MP_ATTR_INT, .i = mp_to_first(rank)[axis < 0 ? axis + rank : axis]};
    for (int i = 0; i < v.in_count; i++) {
        in[i] = v.in[i];
        if (i == 0 || !mp_vertex_is(&v, "Split")) {
            MP_TRY(turn_part(l, v.in[i], rank, &in[i]));
        }
    }
    return mp_twin_node(l, n, &node, in, v.in_count, rank);
}

/* The list of both ends of all dimensions in the order of a twin's. */
static mp_status turn_pads(mp_layout *l, int32_t pads, int rank, int32_t *out) {
    int64_t order[2 * MP_TWIN_RANK_VOLUME];
    for (int d = 0; d < rank; d++) {
        order[d] = mp_to_last(rank)[d];
        order[rank + d] = rank + order[d];
    }
    return mp_twin_pick(l, pads, order, 2 * rank, out);
}

/* A reduction that keeps no dimensions makes what it made before, of a twin. */
static mp_status change(mp_layout *l, int32_t n, const mp_node *node, const int32_t *in,
                        int in_count, int rank) {
    const mp_vertex v = l->graph->nodes[n];
    return is_reduction(&v) && mp_node_int(&v.node, "keepdims", 1) == 0
               ? mp_graph_change_node(l->graph, n, node, in, in_count, v.out, v.out_count)
               : mp_twin_node(l, n, node, in, in_count, rank);
}

static mp_status turn_listed(mp_layout *l, int32_t n, const axes *a, int32_t *in, int rank) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {a->count}}, .data = (mp_addr)a->of_twin};
    mp_node node = v.node;
    mp_attr attrs[ATTRS_MAX];
    int in_count = v.in_count;
    if (mp_node_attr(&v.node, "axes") != NULL) {
        node.attrs = attrs;
        node.attr_count = copy_attrs(&v.node, "axes", attrs);
        attrs[node.attr_count++] = (mp_attr){
            .name = "axes", .kind = MP_ATTR_INTS, .ints = a->of_twin, .count = (size_t)a->count};
    } else {
        in_count = MP_MAX(in_count, a->input + 1);
        MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[a->input]));
    }
    return change(l, n, &node, in, in_count, rank);
}

mp_status mp_turn_axes(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int rank = mp_twin_rank(l, v.in[0]);
    int32_t in[MP_TWIN_WIDTH_MAX];
    axes a;
    if (has_axis(&v)) {
        return turn_axis(l, n);
    }
    for (int i = 0; i < MP_TWIN_WIDTH_MAX; i++) {
        in[i] = i == 0 ? mp_twin_of(l, v.in[0]) : mp_vertex_in(&v, i);
    }
    if (pads_all(l, &v)) {
        MP_TRY(turn_pads(l, v.in[1], rank, &in[1]));
        return mp_twin_node(l, n, &v.node, in, v.in_count, rank);
    }
    return read_axes(l, &v, rank, &a) ? turn_listed(l, n, &a, in, rank)
                                      : MP_FAIL(INTERNAL, "a node's axes are not known any more");
}
