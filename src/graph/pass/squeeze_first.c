/* squeeze_first.c - dimensions of 1 are taken out before a Transpose and not behind it, so that
 * what reads the result sees which order its dimensions had.
 *
 *     Transpose --> Squeeze      becomes      Squeeze --> Transpose
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

typedef struct swap {
    int32_t transpose, squeeze; /* nodes */
    int64_t axes[MP_RANK_MAX], perm[MP_RANK_MAX];
    int axis_count, rank; /* of the result */
} swap;

/* Which dimensions go, in the order of the Transpose's result. */
static bool read_axes(const mp_graph *graph, const mp_vertex *squeeze, int rank, uint32_t *gone) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    *gone = 0;
    if (!mp_graph_ints(graph, squeeze, "axes", 1, axes, &count) || count == 0) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank || (*gone >> axis & 1) != 0) {
            return false;
        }
        *gone |= 1U << axis;
    }
    return true;
}

/* The order of what stays, and the dimensions that go, of what the Transpose reads. */
static void fill(const mp_attr *perm, uint32_t gone, swap *out) {
    uint32_t given = 0;
    for (size_t d = 0; d < perm->count; d++) {
        if ((gone >> d & 1) != 0) {
            given |= 1U << perm->ints[d];
            out->axes[out->axis_count++] = perm->ints[d];
        }
    }
    for (size_t d = 0; d < perm->count; d++) {
        if ((gone >> d & 1) == 0) {
            const uint32_t before = given & ((1U << perm->ints[d]) - 1);
            out->perm[out->rank++] = perm->ints[d] - __builtin_popcount(before);
        }
    }
}

static bool find(const mp_graph *graph, int32_t n, swap *out) {
    const mp_vertex *v = &graph->nodes[n];
    const mp_attr *perm = mp_vertex_is(v, "Transpose") ? mp_vertex_perm(v) : NULL;
    const int32_t s = perm != NULL ? mp_graph_reader(graph, v->out[0], "Squeeze") : MP_NO_NODE;
    uint32_t gone = 0;
    if (s == MP_NO_NODE || graph->nodes[s].in[0] != v->out[0] ||
        !read_axes(graph, &graph->nodes[s], (int)perm->count, &gone)) {
        return false;
    }
    *out = (swap){.transpose = n, .squeeze = s};
    fill(perm, gone, out);
    return out->rank > 0;
}

static mp_status squeeze(mp_graph *graph, const swap *s, int32_t *out) {
    const mp_vertex was = graph->nodes[s->transpose];
    const mp_node node = {.op = mp_op_find("", "Squeeze", 13),
                          .version = 13,
                          .name = graph->nodes[s->squeeze].node.name};
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {s->axis_count}}, .data = (mp_addr)s->axes};
    mp_tensor made = {.type = mp_graph_type(graph, was.in[0]), .shape = {.rank = s->rank}};
    const int32_t result = graph->nodes[s->squeeze].out[0];
    for (int d = 0; d < s->rank; d++) {
        made.shape.dim[s->perm[d]] = mp_graph_dim(graph, result, d);
    }
    int32_t in[] = {was.in[0], MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    MP_TRY(mp_graph_add_value(graph, graph->values[was.out[0]].name, &made, out));
    return mp_graph_change_node(graph, s->transpose, &node, in, 2, out, 1);
}

static mp_status rewrite(mp_graph *graph, const swap *s) {
    const mp_vertex was = graph->nodes[s->transpose];
    const int32_t out = graph->nodes[s->squeeze].out[0];
    const mp_attr perm = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = s->perm, .count = (size_t)s->rank};
    mp_node node = was.node;
    int32_t less = MP_NO_VALUE;
    node.attrs = &perm;
    node.attr_count = 1;
    MP_TRY(squeeze(graph, s, &less));
    const mp_status status = mp_graph_change_node(graph, s->squeeze, &node, &less, 1, &out, 1);
    if (status != MP_OK) {
        mp_graph_remove_node(graph, s->transpose);
        graph->nodes[s->transpose] = was;
        graph->values[was.out[0]].producer = s->transpose;
    }
    return status;
}

mp_status mp_pass_squeeze_first(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        swap s;
        if (find(graph, n, &s) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &s));
        }
    }
    return MP_OK;
}
