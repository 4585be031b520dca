/* wide_scores.c - what is added to scores that are seen in more dimensions, such as rows and
 * columns of an image's pixels, is added to them as they are.
 *
 *     scores [batch, heads, rows, keys] --> [batch, heads, h, w, key h, key w]
 *       + a [batch, heads, h, w, key h, 1] + b [batch, heads, h, w, 1, key w] --> and back
 *     becomes scores + Reshape(a + b)
 *
 * Positions of an image's pixels (MViT v2, Segment Anything) stand in the way of find_attention so.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum { RANK = 4, ADDS_MAX = 2 };

typedef struct wide_scores {
    int32_t scores;         /* value */
    int32_t first, last;    /* nodes: the Reshape to more dimensions, and the one back */
    int32_t add[ADDS_MAX];  /* nodes */
    int32_t bias[ADDS_MAX]; /* values: what they add */
    int count;
} wide_scores;

/* Whether what is added, together, has all dimensions of `wide`. */
static bool fills(const mp_graph *graph, const wide_scores *w, int32_t wide) {
    const int rank = mp_graph_rank(graph, wide);
    for (int d = 1; d <= rank; d++) {
        int64_t most = 1;
        for (int i = 0; i < w->count; i++) {
            const int64_t dim =
                mp_graph_rank(graph, w->bias[i]) >= d ? mp_graph_dim(graph, w->bias[i], -d) : 1;
            if (mp_graph_rank(graph, w->bias[i]) < 0 || dim <= 0) {
                return false;
            }
            most = dim > most ? dim : most;
        }
        if (most != mp_graph_dim(graph, wide, -d)) {
            return false;
        }
    }
    return true;
}

static bool find(const mp_graph *graph, int32_t n, wide_scores *w) {
    const mp_vertex *first = &graph->nodes[n];
    if (!mp_vertex_is(first, "Reshape") || mp_graph_rank(graph, first->in[0]) != RANK ||
        mp_graph_rank(graph, first->out[0]) <= RANK) {
        return false;
    }
    *w = (wide_scores){.scores = first->in[0], .first = n};
    int32_t value = first->out[0];
    int32_t next = mp_graph_reader(graph, value, "Add");
    for (; next != MP_NO_NODE && w->count < ADDS_MAX; next = mp_graph_reader(graph, value, "Add")) {
        const mp_vertex *add = &graph->nodes[next];
        w->add[w->count] = next;
        w->bias[w->count++] = add->in[add->in[0] == value];
        value = add->out[0];
    }
    w->last = mp_graph_reader(graph, value, "Reshape");
    return w->count > 0 && w->last != MP_NO_NODE && graph->nodes[w->last].in[0] == value &&
           mp_graph_same_guard(graph, n, w->last) &&
           mp_graph_same_shape(graph, w->scores, graph->nodes[w->last].out[0]) &&
           fills(graph, w, first->out[0]);
}

static mp_status rewrite(mp_graph *graph, const wide_scores *w) {
    const mp_vertex first = graph->nodes[w->first], last = graph->nodes[w->last];
    const mp_vertex add = graph->nodes[w->add[0]];
    int64_t dim[RANK];
    int32_t in[] = {w->scores, w->bias[0]};
    for (int d = 0; d < RANK; d++) {
        dim[d] = mp_graph_dim(graph, w->scores, d);
    }
    if (w->count == ADDS_MAX) {
        const mp_tensor like = graph->values[first.out[0]].tensor;
        MP_TRY(mp_graph_add_value(graph, add.node.name, &like, &in[1]));
        MP_TRY(mp_graph_add_beside(graph, w->last, &add.node, w->bias, ADDS_MAX, in[1]));
    }
    MP_TRY(mp_graph_add_view(graph, w->last, add.node.name, "Reshape", in[1], dim, RANK, &in[1]));
    MP_TRY(mp_graph_change_node(graph, w->last, &add.node, in, 2, last.out, 1));
    mp_graph_drop_unread(graph, last.in[0]);
    return MP_OK;
}

mp_status mp_pass_wide_scores(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        wide_scores w;
        if (find(graph, n, &w) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &w));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
