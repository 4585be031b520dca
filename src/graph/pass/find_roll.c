/* find_roll.c - what torch.roll becomes: the end of a tensor along an axis, and the rest of it
 * behind. Two of them one behind the other are one operator.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"

enum { RANK_MOST = 8 };

/* Whether a cut that begins there begins where the other ends, whatever the dimension is. */
static bool is_one_place(int64_t start, int64_t end, int64_t dim) {
    return start == end ||
           (dim > 0 && ((start < 0 && start + dim == end) || (end < 0 && end + dim == start)));
}

/* What is rolled by the Concat, or MP_NO_VALUE. */
static int32_t find(const mp_graph *graph, const mp_vertex *v, int64_t *axis, int64_t *start) {
    mp_cut back, front;
    if (v->in_count != 2 || !mp_cut_read_piece(graph, v->in[0], &back) ||
        !mp_cut_read_piece(graph, v->in[1], &front) || back.of != front.of ||
        back.axis != front.axis) {
        return MP_NO_VALUE;
    }
    const int64_t dim = mp_graph_dim(graph, back.of, (int)back.axis);
    const int rank = mp_graph_rank(graph, back.of);
    *axis = mp_node_int(&v->node, "axis", 0);
    *axis += *axis < 0 ? rank : 0;
    *start = back.start;
    return rank <= RANK_MOST && *axis == back.axis &&
                   (back.end >= INT32_MAX || (dim > 0 && back.end >= dim)) && front.start == 0 &&
                   is_one_place(back.start, front.end, dim)
               ? back.of
               : MP_NO_VALUE;
}

static mp_status set_roll(mp_graph *graph, int32_t n, int32_t x, const int64_t *axes,
                          const int64_t *starts, size_t count) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attrs[] = {
        {.name = "axes", .kind = MP_ATTR_INTS, .ints = axes, .count = count},
        {.name = "starts", .kind = MP_ATTR_INTS, .ints = starts, .count = count},
    };
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "Roll", 1),
                          .version = 1,
                          .name = was.node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = was.node.options};
    MP_TRY(mp_graph_change_node(graph, n, &node, &x, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

/* The one axis that `value`, which only node `n` reads, is rolled along before; or NULL. */
static const mp_vertex *rolled_before(const mp_graph *graph, int32_t n, int32_t value) {
    const int32_t before = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = before != MP_NO_NODE ? &graph->nodes[before] : NULL;
    return v != NULL && mp_vertex_is_own(v, "Roll") && v->node.attrs[0].count == 1 &&
                   mp_graph_reader(graph, value, NULL) == n
               ? v
               : NULL;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t x, int64_t axis, int64_t start) {
    MP_TRY(set_roll(graph, n, x, &axis, &start, 1));
    const mp_vertex *first = rolled_before(graph, n, x);
    if (first == NULL || first->node.attrs[0].ints[0] == axis) {
        return MP_OK;
    }
    const int64_t axes[] = {first->node.attrs[0].ints[0], axis};
    const int64_t starts[] = {first->node.attrs[1].ints[0], start};
    return set_roll(graph, n, first->in[0], axes, starts, 2);
}

mp_status mp_pass_find_roll(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        int64_t axis = 0, start = 0;
        const int32_t x = mp_vertex_is(&graph->nodes[n], "Concat")
                              ? find(graph, &graph->nodes[n], &axis, &start)
                              : MP_NO_VALUE;
        if (x != MP_NO_VALUE && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, x, axis, start));
        }
    }
    return MP_OK;
}
