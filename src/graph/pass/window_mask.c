/* window_mask.c - a mask for each window of an image, which is added to scores seen in five
 * dimensions, is added to them as they are.
 *
 *     scores [batch * windows, heads, rows, keys]
 *       --> [batch, windows, heads, rows, keys] + mask [1, windows, 1, rows, keys] --> and back
 *
 * The mask is repeated for each image of the batch instead, so that find_attention sees it. Of two
 * masks one behind the other (Swin v2 of transformers) the first goes in front of the Reshape.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum { WIDE = 5, RANK = 4 };

typedef struct masked {
    int32_t scores, mask;     /* values */
    int32_t first, add, last; /* nodes: to five dimensions, of these, and back to four, or another
                               * mask */
    int64_t batch, windows;
    int64_t dim[WIDE]; /* of the mask */
} masked;

/* Whether the last three dimensions of both are known and the same. */
static bool same_scores(const mp_graph *graph, int32_t a, int32_t b) {
    for (int d = 1; d <= 3; d++) {
        const int64_t dim = mp_graph_dim(graph, a, -d);
        if (dim <= 0 || dim != mp_graph_dim(graph, b, -d)) {
            return false;
        }
    }
    return true;
}

/* The mask's dimensions, as many as there are windows or 1; false where they are not known. */
static bool read_mask(const mp_graph *graph, masked *m) {
    const int rank = mp_graph_rank(graph, m->mask);
    for (int d = 0; d < WIDE; d++) {
        const int own = d - WIDE + rank;
        m->dim[d] = own >= 0 ? mp_graph_dim(graph, m->mask, own) : 1;
        if (m->dim[d] <= 0) {
            return false;
        }
    }
    return rank >= 0 && rank <= WIDE && m->dim[0] == 1 &&
           (m->dim[1] == 1 || (m->dim[1] == m->windows && m->batch > 0));
}

static bool find(const mp_graph *graph, int32_t n, masked *m) {
    const mp_vertex *add = &graph->nodes[n];
    const int32_t last =
        mp_vertex_is(add, "Add") ? mp_graph_reader(graph, add->out[0], NULL) : MP_NO_NODE;
    const bool more = last != MP_NO_NODE && mp_vertex_is(&graph->nodes[last], "Add");
    if (last == MP_NO_NODE || (!more && !mp_vertex_is(&graph->nodes[last], "Reshape"))) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        const int32_t wide = add->in[i];
        const int32_t first = mp_graph_maker(graph, wide, "Reshape");
        if (first == MP_NO_NODE || mp_graph_reader(graph, wide, "Add") != n ||
            mp_graph_rank(graph, wide) != WIDE) {
            continue;
        }
        *m = (masked){.scores = graph->nodes[first].in[0],
                      .mask = add->in[1 - i],
                      .first = first,
                      .add = n,
                      .last = last,
                      .batch = mp_graph_dim(graph, wide, 0),
                      .windows = mp_graph_dim(graph, wide, 1)};
        const int32_t back = graph->nodes[last].out[0];
        if ((more || graph->nodes[last].in[0] == add->out[0]) &&
            mp_graph_rank(graph, m->scores) == RANK &&
            mp_graph_rank(graph, back) == (more ? WIDE : RANK) && m->windows > 0 &&
            same_scores(graph, wide, m->scores) && same_scores(graph, wide, back) &&
            read_mask(graph, m)) {
            return true;
        }
    }
    return false;
}

/* The sum of scores and mask as they are takes the place of the scores. */
static mp_status add_in_front(mp_graph *graph, const masked *m, const int32_t *in) {
    const mp_vertex add = graph->nodes[m->add], first = graph->nodes[m->first];
    const mp_tensor like = graph->values[m->scores].tensor;
    int32_t sum = MP_NO_VALUE;
    MP_TRY(mp_graph_add_value(graph, add.node.name, &like, &sum));
    MP_TRY(mp_graph_add_beside(graph, m->add, &add.node, in, 2, sum));
    const int32_t seen[] = {sum, first.in[1]};
    MP_TRY(mp_graph_change_node(graph, m->add, &first.node, seen, 2, add.out, 1));
    mp_graph_drop_unread(graph, first.out[0]);
    return MP_OK;
}

static mp_status rewrite(mp_graph *graph, const masked *m) {
    const int64_t times = m->dim[1] == 1 ? 1 : m->batch;
    const int64_t all[WIDE] = {times, m->dim[1], m->dim[2], m->dim[3], m->dim[4]};
    const int64_t flat[RANK] = {times * m->dim[1], m->dim[2], m->dim[3], m->dim[4]};
    const char *name = graph->nodes[m->add].node.name;
    int32_t in[] = {m->scores, m->mask};
    if (times > 1) {
        MP_TRY(mp_graph_add_view(graph, m->last, name, "Expand", in[1], all, WIDE, &in[1]));
    }
    MP_TRY(mp_graph_add_view(graph, m->last, name, "Reshape", in[1], flat, RANK, &in[1]));
    const mp_vertex add = graph->nodes[m->add];
    if (mp_vertex_is(&graph->nodes[m->last], "Add")) {
        return add_in_front(graph, m, in);
    }
    const int32_t out = graph->nodes[m->last].out[0];
    MP_TRY(mp_graph_change_node(graph, m->last, &add.node, in, 2, &out, 1));
    mp_graph_drop_unread(graph, add.out[0]);
    return MP_OK;
}

mp_status mp_pass_window_mask(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        masked m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
