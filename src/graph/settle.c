/* settle.c - which nodes of the model a changed node stands for, found from what a pass has left.
 *
 * A pass puts one node in the place of a pattern and takes the others out, mostly those that nobody
 * reads any more. These made what the changed node makes now, or what it read before it was
 * changed, or in turn what one of them read. So they are found by going from values to the nodes
 * that made them and were taken out; a node that is still there is not gone past.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include <stdlib.h>

typedef struct settling {
    mp_graph *graph;
    int32_t *makers; /* by value: the node that was taken out and made it; MP_NO_NODE */
    int32_t *seen;   /* by node: the last one that it was looked at for */
    int32_t *stack;  /* nodes to be looked at; each once for a node that was changed */
    int32_t depth;
} settling;

static void reach(settling *s, int32_t n, int32_t maker) {
    if (maker != MP_NO_NODE && s->seen[maker] != n) {
        s->seen[maker] = n;
        s->stack[s->depth++] = maker;
    }
}

/* What nobody makes any more. */
static void reach_made(settling *s, int32_t n, const int32_t *values, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (values[i] != MP_NO_VALUE && s->graph->values[values[i]].producer == MP_NO_NODE) {
            reach(s, n, s->makers[values[i]]);
        }
    }
}

static mp_status settle_node(settling *s, int32_t n) {
    const mp_vertex *v = &s->graph->nodes[n];
    for (int32_t i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            reach(s, n, s->makers[v->out[i]]);
        }
    }
    reach_made(s, n, v->former, v->former_count);
    while (s->depth > 0) {
        const int32_t gone = s->stack[--s->depth];
        const mp_vertex *g = &s->graph->nodes[gone];
        MP_TRY(mp_graph_absorb(s->graph, n, gone));
        reach_made(s, n, g->in, g->in_count);
        reach_made(s, n, g->former, g->former_count);
    }
    return MP_OK;
}

static void find_makers(settling *s) {
    const mp_graph *graph = s->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        s->makers[i] = MP_NO_NODE;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        s->seen[n] = MP_NO_NODE;
        for (int32_t i = 0; i < v->out_count && v->is_gone && !v->is_absorbed; i++) {
            if (v->out[i] != MP_NO_VALUE) {
                s->makers[v->out[i]] = n;
            }
        }
    }
}

static mp_status settle(settling *s) {
    find_makers(s);
    for (int32_t n = 0; n < s->graph->node_count; n++) {
        mp_vertex *v = &s->graph->nodes[n];
        if (!v->is_gone && v->former != NULL) {
            MP_TRY(settle_node(s, n));
            v->former = NULL;
            v->former_count = 0;
        }
    }
    return MP_OK;
}

mp_status mp_graph_settle(mp_graph *graph) {
    const size_t nodes = (size_t)graph->node_count + 1;
    settling s = {.graph = graph,
                  .makers = calloc((size_t)graph->value_count + 1, sizeof *s.makers),
                  .seen = calloc(nodes, sizeof *s.seen),
                  .stack = calloc(nodes, sizeof *s.stack)};
    const mp_status status =
        s.makers != NULL && s.seen != NULL && s.stack != NULL
            ? settle(&s)
            : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at a graph");
    free(s.makers);
    free(s.seen);
    free(s.stack);
    return status;
}
