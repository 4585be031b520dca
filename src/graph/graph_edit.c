/* graph_edit.c - how passes change a graph: values and nodes that go, and the order of those left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_private.h"

#include <stdlib.h>
#include <string.h>

void mp_graph_replace(mp_graph *graph, int32_t from, int32_t to, bool outputs) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            v->in[i] = v->in[i] == from ? to : v->in[i];
        }
    }
    for (int32_t i = 0; i < graph->guard_count; i++) {
        mp_guard *guard = &graph->guards[i];
        guard->condition = guard->condition == from ? to : guard->condition;
    }
    for (int32_t i = 0; i < graph->output_count && outputs; i++) {
        graph->outputs[i] = graph->outputs[i] == from ? to : graph->outputs[i];
    }
}

void mp_graph_remove_node(mp_graph *graph, int32_t node) {
    graph->nodes[node].is_gone = true;
    mp__graph_set_producer(graph, &graph->nodes[node], MP_NO_NODE);
}

mp_status mp_graph_merge_node(mp_graph *graph, int32_t n, int32_t gone, const mp_node *node,
                              const int32_t *in, int in_count, const int32_t *out, int out_count) {
    mp_graph_remove_node(graph, gone);
    const mp_status status = mp_graph_change_node(graph, n, node, in, in_count, out, out_count);
    if (status != MP_OK) {
        graph->nodes[gone].is_gone = false;
        mp__graph_set_producer(graph, &graph->nodes[gone], gone);
    }
    return status;
}

static bool is_read(const mp_graph *graph, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && mp_graph_uses(graph, v->out[i]) > 0) {
            return true;
        }
    }
    return false;
}

/* `top`: the first of a chain of nodes that were taken out; what they read is to be looked at. */
static void drop_maker(mp_graph *graph, int32_t value, int32_t *top) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    if (n != MP_NO_NODE && !is_read(graph, &graph->nodes[n])) {
        mp_graph_remove_node(graph, n);
        graph->nodes[n].next = *top;
        *top = n;
    }
}

void mp_graph_drop_unread(mp_graph *graph, int32_t value) {
    int32_t top = MP_NO_NODE;
    drop_maker(graph, value, &top);
    while (top != MP_NO_NODE) {
        const mp_vertex *v = &graph->nodes[top];
        top = v->next;
        for (int i = 0; i < v->in_count; i++) {
            drop_maker(graph, v->in[i], &top);
        }
    }
}

void mp_graph_drop_inputs(mp_graph *graph, const mp_vertex *was) {
    for (int i = 0; i < was->in_count; i++) {
        mp_graph_drop_unread(graph, was->in[i]);
    }
}

void mp_graph_compact(mp_graph *graph) {
    int32_t kept = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].is_gone) {
            graph->nodes[kept] = graph->nodes[n];
            mp__graph_set_producer(graph, &graph->nodes[kept], kept);
            kept++;
        }
    }
    graph->node_count = kept;
}

/* The maker of `value`, if it is not placed yet, or MP_NO_NODE. */
static int32_t unplaced(const mp_graph *graph, int32_t value, const int32_t *place) {
    const int32_t maker = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    return maker != MP_NO_NODE && place[maker] < 0 ? maker : MP_NO_NODE;
}

/* The first such maker of an input of node `n`, or of a condition of its guards. */
static int32_t waits_for(const mp_graph *graph, int32_t n, const int32_t *place) {
    const mp_vertex *v = &graph->nodes[n];
    int32_t maker = MP_NO_NODE;
    for (int i = 0; i < v->in_count && maker == MP_NO_NODE; i++) {
        maker = unplaced(graph, v->in[i], place);
    }
    for (int32_t g = v->guard; g != 0 && maker == MP_NO_NODE; g = graph->guards[g - 1].outer) {
        maker = unplaced(graph, graph->guards[g - 1].condition, place);
    }
    return maker;
}

/* `place`: by node, where it goes; `stack` has those that wait for what is above them. */
static void place_nodes(const mp_graph *graph, int32_t *place, int32_t *stack) {
    int32_t placed = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        int32_t height = 0;
        if (place[n] < 0) {
            stack[height++] = n;
        }
        while (height > 0) {
            const int32_t maker = waits_for(graph, stack[height - 1], place);
            if (maker != MP_NO_NODE) {
                stack[height++] = maker;
            } else {
                place[stack[--height]] = placed++;
            }
        }
    }
}

mp_status mp_graph_sort(mp_graph *graph) {
    const size_t count = (size_t)graph->node_count + 1;
    mp_vertex *sorted = malloc(count * sizeof *sorted);
    int32_t *place = malloc(2 * count * sizeof *place);
    if (sorted == NULL || place == NULL) {
        free(sorted);
        free(place);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to sort a graph");
    }
    memset(place, 0xff, count * sizeof *place);
    place_nodes(graph, place, place + count);
    for (int32_t n = 0; n < graph->node_count; n++) {
        sorted[place[n]] = graph->nodes[n];
    }
    if (graph->node_count > 0) { /* else there may be no list */
        memcpy(graph->nodes, sorted, (size_t)graph->node_count * sizeof *sorted);
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].is_gone) {
            mp__graph_set_producer(graph, &graph->nodes[n], n);
        }
    }
    free(sorted);
    free(place);
    return MP_OK;
}
