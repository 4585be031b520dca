/* fewer_dims.c - dimensions of 1 that only stand in the way of passes go where a Reshape is next.
 *
 *     Unsqueeze --> Transpose    becomes      Transpose --> Unsqueeze
 *     Unsqueeze --> Reshape      becomes      Reshape
 *     Reshape --> Squeeze        becomes      Reshape to fewer
 *
 * tf2onnx writes an Einsum of Keras's attention as a product between such. A Reshape's size of 0
 * stands for a dimension of what it reads, so none may where dimensions move.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

/* Which of `rank` dimensions, those of what an Unsqueeze gives or a Squeeze reads, it has put in or
 * takes out; 0 where that is not known. */
static uint32_t read_axes(const mp_graph *graph, const mp_vertex *v, int rank) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    uint32_t seen = 0;
    if (rank < 1 || rank > MP_RANK_MAX || !mp_graph_ints(graph, v, "axes", 1, axes, &count)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank || (seen >> axis & 1) != 0) {
            return 0;
        }
        seen |= 1U << axis;
    }
    return seen;
}

/* The Unsqueeze that makes what node `n` reads, if its own result has `*rank` dimensions, of which
 * those in `*fresh` are new; or MP_NO_NODE. */
static int32_t unsqueeze_before(const mp_graph *graph, int32_t n, int *rank, uint32_t *fresh) {
    const int32_t u = mp_graph_maker(graph, mp_vertex_in(&graph->nodes[n], 0), "Unsqueeze");
    const int before = u != MP_NO_NODE ? mp_graph_rank(graph, graph->nodes[u].in[0]) : -1;
    *rank = before >= 0 ? mp_graph_rank(graph, graph->nodes[u].out[0]) : -1;
    *fresh = before >= 0 ? read_axes(graph, &graph->nodes[u], *rank) : 0;
    return *fresh != 0 && __builtin_popcount(*fresh) == *rank - before &&
                   mp_graph_same_guard(graph, u, n)
               ? u
               : MP_NO_NODE;
}

/* Whether no size of the list says 0 for a dimension that has another index after dimensions from
 * `first` on have moved. Those that a number, or -1, stands for never do. */
static bool asks_for_none(const mp_graph *graph, const mp_vertex *reshape, int first) {
    const int64_t length = mp_graph_list_length(graph, reshape->in[1]);
    if (length < 0) {
        return false;
    }
    for (int i = first; i < length; i++) {
        if (!mp_graph_entry_is_rest(graph, reshape->in[1], i) &&
            mp_graph_entry_dim(graph, reshape->in[1], i) <= 0) {
            return false;
        }
    }
    return true;
}

/* ---- Unsqueeze, Transpose ---- */

static mp_status add_axes(mp_graph *graph, uint32_t which, int32_t *out) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    for (int d = 0; d < MP_RANK_MAX; d++) {
        if ((which >> d & 1) != 0) {
            axes[count++] = d;
        }
    }
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {count}}, .data = (mp_addr)axes};
    return mp_graph_add_constant(graph, "", &list, out);
}

static mp_status turn_first(mp_graph *graph, int32_t n, int32_t u, uint32_t fresh) {
    const mp_vertex turn = graph->nodes[n], unsqueeze = graph->nodes[u];
    const mp_attr *was = mp_vertex_perm(&turn);
    int64_t order[MP_RANK_MAX];
    const mp_attr perm = {.name = "perm",
                          .kind = MP_ATTR_INTS,
                          .ints = order,
                          .count = was->count - (size_t)__builtin_popcount(fresh)};
    const mp_shape *given = &graph->values[unsqueeze.in[0]].tensor.shape;
    mp_tensor less = {.type = mp_graph_type(graph, unsqueeze.in[0])};
    uint32_t behind = 0;
    for (size_t d = 0; d < was->count; d++) {
        const int64_t from = was->ints[d];
        if ((fresh >> from & 1) != 0) {
            behind |= 1U << d;
        } else {
            const int64_t old = from - __builtin_popcount(fresh & ((1U << from) - 1));
            less.shape.dim[less.shape.rank] =
                given->rank >= 0 ? given->dim[old] : mp_graph_dim(graph, unsqueeze.in[0], (int)old);
            order[less.shape.rank++] = old;
        }
    }
    mp_node node = turn.node;
    node.attrs = &perm;
    node.attr_count = 1;
    const mp_node view = {.op = mp_op_find("", "Unsqueeze", 13),
                          .version = 13,
                          .name = unsqueeze.node.name,
                          .options = unsqueeze.node.options};
    int32_t turned = MP_NO_VALUE, in[] = {MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(mp_graph_add_value(graph, graph->values[turn.out[0]].name, &less, &turned));
    MP_TRY(add_axes(graph, behind, &in[1]));
    MP_TRY(mp_graph_add_beside(graph, n, &node, unsqueeze.in, 1, turned));
    in[0] = turned;
    MP_TRY(mp_graph_change_node(graph, n, &view, in, 2, turn.out, 1));
    mp_graph_drop_unread(graph, turn.in[0]);
    return MP_OK;
}

static mp_status try_turn(mp_graph *graph, int32_t n, mp_rewrites *rewrites, bool *changed) {
    int rank = 0;
    uint32_t fresh = 0;
    const int32_t u = unsqueeze_before(graph, n, &rank, &fresh);
    const mp_attr *perm = u != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    if (perm == NULL || perm->count != (size_t)rank || __builtin_popcount(fresh) == rank ||
        !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    *changed = true;
    return turn_first(graph, n, u, fresh);
}

/* ---- Reshape ---- */

static mp_status try_reshape(mp_graph *graph, int32_t n, mp_rewrites *rewrites, bool *changed) {
    int rank = 0;
    uint32_t fresh = 0;
    const int32_t u = unsqueeze_before(graph, n, &rank, &fresh);
    const mp_vertex reshape = graph->nodes[n];
    if (u == MP_NO_NODE || reshape.in_count != 2 ||
        !asks_for_none(graph, &reshape, __builtin_ctz(fresh)) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const int32_t in[] = {graph->nodes[u].in[0], reshape.in[1]};
    MP_TRY(mp_graph_change_node(graph, n, &reshape.node, in, 2, reshape.out, 1));
    mp_graph_drop_unread(graph, reshape.in[0]);
    *changed = true;
    return MP_OK;
}

/* The sizes in `list` but for those that go. */
static mp_status fewer_sizes(mp_graph *graph, int32_t n, int32_t list, int rank, uint32_t gone,
                             int32_t *out) {
    const mp_attr axis = {.name = "axis", .kind = MP_ATTR_INT, .i = 0};
    const mp_node node = {.op = mp_op_find("", "Gather", 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .attrs = &axis,
                          .attr_count = 1};
    const mp_tensor made = {.type = MP_I64,
                            .shape = {.rank = 1, .dim = {rank - __builtin_popcount(gone)}}};
    int32_t in[] = {list, MP_NO_VALUE};
    MP_TRY(add_axes(graph, ~gone & ((1U << rank) - 1), &in[1]));
    MP_TRY(mp_graph_add_value(graph, "", &made, out));
    return mp_graph_add_beside(graph, n, &node, in, 2, *out);
}

static mp_status try_squeeze(mp_graph *graph, int32_t n, mp_rewrites *rewrites, bool *changed) {
    const int32_t s = mp_graph_reader(graph, graph->nodes[n].out[0], "Squeeze");
    const mp_vertex reshape = graph->nodes[n];
    const int64_t rank = mp_graph_list_length(graph, mp_vertex_in(&reshape, 1));
    const uint32_t gone = s != MP_NO_NODE ? read_axes(graph, &graph->nodes[s], (int)rank) : 0;
    if (gone == 0 || reshape.in_count != 2 || __builtin_popcount(gone) == rank ||
        graph->nodes[s].in[0] != reshape.out[0] ||
        !asks_for_none(graph, &reshape, __builtin_ctz(gone)) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    int32_t in[] = {reshape.in[0], MP_NO_VALUE};
    const int32_t result = graph->nodes[s].out[0];
    MP_TRY(fewer_sizes(graph, n, reshape.in[1], (int)rank, gone, &in[1]));
    *changed = true;
    return mp_graph_merge_node(graph, n, s, &reshape.node, in, 2, &result, 1);
}

mp_status mp_pass_fewer_dims(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        if (mp_vertex_is(&graph->nodes[n], "Transpose")) {
            MP_TRY(try_turn(graph, n, rewrites, &changed));
        } else if (mp_vertex_is(&graph->nodes[n], "Reshape")) {
            MP_TRY(try_squeeze(graph, n, rewrites, &changed));
            MP_TRY(try_reshape(graph, n, rewrites, &changed));
        }
    }
    return mp_graph_tidy(graph, changed);
}
