/* dead.c - nodes whose outputs nobody reads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include <stdlib.h>

/* By value: how many read it. */
static int *count_uses(const mp_graph *graph) {
    int *uses = calloc((size_t)graph->value_count + 1, sizeof *uses);
    for (int32_t n = 0; uses != NULL && n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            uses[v->in[i] != MP_NO_VALUE ? v->in[i] : graph->value_count]++;
        }
    }
    for (int32_t i = 0; uses != NULL && i < graph->output_count; i++) {
        uses[graph->outputs[i]]++;
    }
    return uses;
}

static bool is_read(const mp_vertex *v, const int *uses) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && uses[v->out[i]] > 0) {
            return true;
        }
    }
    return false;
}

mp_status mp_pass_dead(mp_graph *graph, mp_rewrites *rewrites) {
    int *uses = count_uses(graph);
    if (uses == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at a graph");
    }
    for (int32_t n = graph->node_count; n-- > 0;) { /* readers before makers */
        const mp_vertex *v = &graph->nodes[n];
        if (v->is_gone || is_read(v, uses) || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        for (int i = 0; i < v->in_count; i++) {
            uses[v->in[i] != MP_NO_VALUE ? v->in[i] : graph->value_count]--;
        }
        mp_graph_remove_node(graph, n);
    }
    free(uses);
    return MP_OK;
}
