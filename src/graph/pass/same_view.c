/* same_view.c - a value that is seen in other dimensions, one way or another, and then in its own
 * again is itself.
 *
 *     GlobalAveragePool --> Squeeze --> Reshape to [batch, channels, 1, 1]
 *
 * Keras writes gates of channels so, which other passes know without it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

enum { VIEWS_MOST = 8 };

static bool is_view(const mp_vertex *v) {
    static const char *const names[] = {"Reshape", "Squeeze", "Unsqueeze", "Flatten"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) && v->out_count == 1;
}

/* Whether two values with the same elements have the same dimensions. One may be what the others
 * leave, if none of these is 0. */
static bool have_same_dims(const mp_graph *graph, int32_t a, int32_t b) {
    const int rank = mp_graph_rank(graph, a);
    int same = 0, numbers = 0;
    if (rank < 1 || rank != mp_graph_rank(graph, b)) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        const bool is = mp_graph_same_dim(graph, a, d, b, d);
        const int64_t of_a = mp_graph_dim(graph, a, d), of_b = mp_graph_dim(graph, b, d);
        if (!is && of_a >= 0 && of_b >= 0) {
            return false;
        }
        same += is;
        numbers += is && of_a > 0;
    }
    return same == rank || numbers == rank - 1;
}

/* What the result of such a view is a view of, with its dimensions; or MP_NO_VALUE. */
static int32_t seen_again(const mp_graph *graph, const mp_vertex *v) {
    int32_t found = MP_NO_VALUE;
    const int32_t result = v->out[0];
    for (int left = VIEWS_MOST; left > 0 && v != NULL && is_view(v); left--) {
        const int32_t value = v->in[0];
        const int32_t n = mp_graph_maker(graph, value, NULL);
        found = have_same_dims(graph, value, result) ? value : found;
        v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    }
    return found;
}

mp_status mp_pass_same_view(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t same = is_view(v) && !mp_graph_is_output(graph, v->out[0])
                                 ? seen_again(graph, v)
                                 : MP_NO_VALUE;
        if (same == MP_NO_VALUE || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        const mp_vertex was = *v;
        mp_graph_replace(graph, was.out[0], same, false);
        mp_graph_remove_node(graph, n);
        mp_graph_drop_inputs(graph, &was);
    }
    return MP_OK;
}
