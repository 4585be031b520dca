/* island_name.c - what an island is called, and its memory: in the log, on timelines, in traces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/island/island.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END_MAX = 80 }; /* bytes of a node's name; of a long one the end tells it apart */

static const char *word_of(const mp_vertex *v) {
    return v->node.name[0] != '\0' ? v->node.name : v->node.op->name;
}

static const char *end_of(const char *name) {
    const size_t length = strlen(name);
    return length > END_MAX ? name + length - END_MAX : name;
}

static char *make_name(int number, const mp_graph *graph) {
    char *name = NULL;
    int made = -1;
    if (graph->node_count == 1) {
        made = asprintf(&name, "island %d (%s)", number, end_of(word_of(&graph->nodes[0])));
    } else if (graph->node_count > 1) {
        made = asprintf(&name, "island %d (%d nodes: %s .. %s)", number, (int)graph->node_count,
                        end_of(word_of(&graph->nodes[0])),
                        end_of(word_of(&graph->nodes[graph->node_count - 1])));
    } else {
        made = asprintf(&name, "island %d", number);
    }
    return made >= 0 ? name : NULL;
}

/* An output is the activation of the node that makes it, as it is without islands. */
static void label_outputs(const mp_graph *graph, mp_label *labels) {
    for (int32_t i = 0; i < graph->output_count; i++) {
        const mp_value *value = &graph->values[graph->outputs[i]];
        const char *node =
            value->producer != MP_NO_NODE ? word_of(&graph->nodes[value->producer]) : NULL;
        labels[i] = mp_label_make(MP_LABEL_ACTIVATIONS, node, value->name);
    }
}

mp_status mp__island_name_body(mp_island *body, const mp_island *around, const mp_vertex *loop) {
    body->number = around->number;
    body->event = strdup(""); /* what it does is told of the island around it */
    if (asprintf(&body->name, "%s, body of '%s'", around->name, end_of(word_of(loop))) < 0) {
        body->name = NULL;
    }
    if (body->event == NULL || body->name == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island's name");
    }
    body->label = mp_label_make(MP_LABEL_ACTIVATIONS, body->name, "values between its nodes");
    return MP_OK;
}

mp_status mp__island_name(mp_island *island, const OrtNode *fused) {
    const char *event = "";
    MP_TRY(mp__from_ort(ORT->Node_GetName(fused, &event)));
    island->number = atomic_fetch_add(&island->provider->islands.made, 1);
    island->event = strdup(event != NULL ? event : "");
    island->name = make_name(island->number, island->graph);
    island->out_labels =
        calloc((size_t)island->graph->output_count + 1, sizeof *island->out_labels);
    if (island->event == NULL || island->name == NULL || island->out_labels == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island's name");
    }
    island->label = mp_label_make(MP_LABEL_ACTIVATIONS, island->name, "values between its nodes");
    label_outputs(island->graph, island->out_labels);
    return MP_OK;
}
