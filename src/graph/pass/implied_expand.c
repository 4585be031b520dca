/* implied_expand.c - an Expand to the shape of what its result is then computed with goes: the
 * element-wise operator repeats elements itself. So torch.nn.functional.normalize divides by a
 * norm.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

static bool repeats(const mp_vertex *v) {
    static const char *const names[] = {"Add", "Sub", "Mul", "Div", "Pow"};
    return v->in_count == 2 && mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

/* Whether Expand `e` gives its result the shape of `other`. */
static bool is_shape_of(const mp_graph *graph, const mp_vertex *e, int32_t other) {
    const int rank = mp_graph_rank(graph, other);
    bool same = rank >= 0 && mp_graph_rank(graph, e->out[0]) == rank;
    for (int d = 0; d < rank && same; d++) {
        same = mp_graph_same_dim(graph, e->out[0], d, other, d) ||
               mp_graph_entry_is(graph, e->in[1], d, other, d);
    }
    return same;
}

/* Which input of the node comes of such an Expand; -1. */
static int find(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    for (int i = 0; i < 2 && repeats(v); i++) {
        const int32_t e = mp_graph_maker(graph, v->in[i], "Expand");
        if (e != MP_NO_NODE && mp_graph_reader(graph, v->in[i], NULL) == n &&
            is_shape_of(graph, &graph->nodes[e], v->in[1 - i])) {
            return i;
        }
    }
    return -1;
}

mp_status mp_pass_implied_expand(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int i = find(graph, n);
        if (i < 0 || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        const mp_vertex was = graph->nodes[n];
        int32_t in[] = {was.in[0], was.in[1]};
        in[i] = graph->nodes[graph->values[was.in[i]].producer].in[0];
        MP_TRY(mp_graph_change_node(graph, n, &was.node, in, 2, was.out, was.out_count));
        mp_graph_drop_unread(graph, was.in[i]);
    }
    return MP_OK;
}
