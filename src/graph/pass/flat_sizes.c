/* flat_sizes.c - see flat_sizes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/flat_sizes.h"

#include "graph/look.h"

/* Behind the last element of any list of sizes. */
static const int64_t end_least = MP_RANK_MAX;

/* Whether a Gather takes nothing but sizes `from` and `from + 1`. */
static bool takes_both(const mp_graph *graph, const mp_vertex *v, int64_t from) {
    int64_t at[MP_RANK_MAX];
    int count = 0;
    bool takes = mp_vertex_is(v, "Gather") && mp_graph_ints(graph, v, "", 1, at, &count);
    for (int i = 0; takes && i < count; i++) {
        takes = at[i] == from || at[i] == from + 1;
    }
    return takes;
}

/* Whether these are sizes that are counted from the end, the last two at most. */
static bool is_tail(int64_t start, int64_t end) {
    return (start == -1 || start == -2) && (end == -1 || end >= end_least);
}

static bool cuts_tail(const mp_graph *graph, const mp_vertex *v) {
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX], step[MP_RANK_MAX];
    int starts = 0, ends = 0, steps = 0;
    return mp_vertex_is(v, "Slice") && mp_graph_ints(graph, v, "starts", 1, start, &starts) &&
           mp_graph_ints(graph, v, "ends", 2, end, &ends) && starts == 1 && ends == 1 &&
           is_tail(start[0], end[0]) &&
           (mp_vertex_in(v, 4) == MP_NO_VALUE ||
            (mp_graph_ints(graph, v, "steps", 4, step, &steps) && steps == 1 && step[0] == 1));
}

static bool takes_lead(const mp_graph *graph, const mp_vertex *v) {
    return takes_both(graph, v, 0);
}

static bool takes_tail(const mp_graph *graph, const mp_vertex *v) {
    return takes_both(graph, v, -2) || cuts_tail(graph, v);
}

/* Whether all that a Shape gives, or of all sizes whatever is taken, are such sizes alone. */
static bool asks(const mp_graph *graph, const mp_vertex *shape,
                 bool (*takes)(const mp_graph *graph, const mp_vertex *v)) {
    if (mp_vertex_is(shape, "Shape") && takes == takes_tail &&
        is_tail(mp_node_int(&shape->node, "start", 0),
                mp_node_int(&shape->node, "end", end_least))) {
        return true;
    }
    if (!mp_vertex_is(shape, "Shape") || mp_node_int(&shape->node, "start", 0) != 0 ||
        mp_node_attr(&shape->node, "end") != NULL || mp_graph_is_output(graph, shape->out[0])) {
        return false;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] == shape->out[0] && (i > 0 || !takes(graph, v))) {
                return false;
            }
        }
    }
    return true;
}

int32_t mp_flat_reader(const mp_graph *graph, int32_t flat, bool has_lead) {
    int32_t found = MP_NO_NODE;
    if (mp_graph_is_output(graph, flat) || mp_graph_is_condition(graph, flat)) {
        return MP_NO_NODE;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] != flat || asks(graph, v, takes_tail) ||
                (has_lead && asks(graph, v, takes_lead))) {
                continue;
            }
            if (found != MP_NO_NODE) {
                return MP_NO_NODE;
            }
            found = n;
        }
    }
    return found;
}

mp_status mp_flat_ask(mp_graph *graph, int32_t flat, int32_t wide, int32_t lead) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex v = graph->nodes[n];
        if (!mp_vertex_is(&v, "Shape") || v.in[0] != flat) {
            continue;
        }
        if (asks(graph, &v, takes_tail)) {
            MP_TRY(mp_graph_change_node(graph, n, &v.node, &wide, 1, v.out, 1));
        } else {
            mp_graph_replace(graph, v.out[0], lead, false);
            mp_graph_drop_unread(graph, v.out[0]);
        }
    }
    return MP_OK;
}
