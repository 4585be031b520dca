/* island.c - what ONNX Runtime sees of an island: it is compiled, and let go.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/island.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/context/context.h"
#include "ep/island/import.h"
#include "ep/island/island_note.h"
#include "ep/island/weights.h"
#include "graph/pass.h"
#include "graph/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void destroy(mp_island *island) {
    if (island == NULL) {
        return;
    }
    mp__island_list_remove(island);
    mp__island_programs_close(island);
    for (int32_t i = 0; i < island->body_count; i++) {
        destroy(island->bodies[i].island);
    }
    free(island->bodies);
    if (!island->is_body) {
        mp_graph_destroy(island->graph);
    }
    pthread_mutex_destroy(&island->lock);
    free(island->name);
    free(island->event);
    free(island->out_labels);
    free(island->sources);
    free(island->nodes);
    free(island->before);
    free(island);
}

static OrtStatus *create_state(OrtNodeComputeInfo *self, OrtNodeComputeContext *context,
                               void **state) {
    (void)context;
    *state = self; /* runs keep nothing */
    return NULL;
}

static void release_state(OrtNodeComputeInfo *self, void *state) {
    (void)self;
    (void)state;
}

/* A line of the log for each line of the graph's text, at debug level. */
static void log_graph(const mp_island *island) {
    char *text = NULL;
    char *rest = NULL;
    if (mp_log_get_threshold() < MP_LOG_DEBUG ||
        mp_graph_write_origins(island->graph, &text) != MP_OK) {
        return;
    }
    for (const char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        MP_LOG(DEBUG, "%s: %s", island->name, line);
    }
    free(text);
}

/* Whether the node stands for what the one before it does: a result of the same If. */
static bool is_again(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    const mp_vertex *before = n > 0 ? v - 1 : NULL;
    return before != NULL && v->node.op == before->node.op &&
           strcmp(v->node.op->domain, MP_OWN_DOMAIN) == 0 &&
           strcmp(v->node.name, before->node.name) == 0;
}

/* What the passes take away. */
static mp_status keep_for_explanation(mp_island *island) {
    const mp_graph *graph = island->graph;
    mp_origin *all = NULL;
    int32_t count = 0;
    if (!island->provider->options.explain) {
        return MP_OK;
    }
    MP_TRY(mp_graph_write_origins(graph, &island->before));
    all = calloc((size_t)graph->node_count + 1, sizeof *all);
    if (all == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to explain an island");
    }
    for (int32_t n = 0; n < graph->node_count; n++) { /* each stands for itself yet */
        const mp_origins *o = &graph->nodes[n].origins;
        if (o->count > 0 && !is_again(graph, n)) {
            all[count++] = o->list[0];
        }
    }
    const mp_status status = mp_origins_json((mp_origins){all, count}, &island->nodes);
    free(all);
    return status;
}

static mp_status rewrite(mp_island *island) {
    int64_t *all = &island->provider->islands.rewrites;
    const int64_t before = *all;
    MP_TRY(mp_passes_run(island->graph, secure_getenv("MILLPOND_PASSES"), all));
    island->rewrites = *all - before;
    return MP_OK;
}

/* ---- one island, without its constants ---- */

enum { BODY_SHARE = 4 }; /* shapes of a body change from one iteration to the next */

static mp_status open_island(mp_provider *provider, bool is_body, mp_island **out) {
    const int most = (int)provider->options.fusion_programs;
    mp_island *island = calloc(1, sizeof *island);
    if (island == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island");
    }
    pthread_mutex_init(&island->lock, NULL);
    island->provider = provider;
    island->is_body = is_body;
    island->programs.most = is_body ? BODY_SHARE * most : most;
    island->base = (OrtNodeComputeInfo){.ort_version_supported = mp_the_plugin.version,
                                        .CreateState = create_state,
                                        .Compute = mp__island_compute,
                                        .ReleaseState = release_state};
    *out = island;
    return MP_OK;
}

static mp_status fill_graph(mp_island *island);

static mp_status fill_body(mp_island *island, const mp_vertex *v) {
    mp_island_body *body = &island->bodies[island->body_count];
    body->loop = v->loop;
    MP_TRY(open_island(island->provider, true, &body->island));
    island->body_count++;
    body->island->graph = v->loop->body;
    MP_TRY(mp__island_name_body(body->island, island, v));
    return fill_graph(body->island);
}

/* Of a graph as imported, which has been named. */
static mp_status fill_graph(mp_island *island) {
    const mp_graph *graph = island->graph;
    island->node_count = graph->node_count;
    MP_TRY(keep_for_explanation(island));
    MP_TRY(rewrite(island));
    MP_LOG(DEBUG, "%s: %d nodes after %lld rewrites, %d inputs, %d outputs", island->name,
           (int)graph->node_count, (long long)island->rewrites, (int)graph->input_count,
           (int)graph->output_count);
    log_graph(island);
    island->bodies = calloc((size_t)graph->body_count + 1, sizeof *island->bodies);
    if (island->bodies == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island");
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].loop != NULL) {
            MP_TRY(fill_body(island, &graph->nodes[n]));
        }
    }
    return MP_OK;
}

/* ---- where the graph comes from, and goes to ---- */

/* Which of the fused node's inputs are not constants. */
static mp_status set_sources(mp_island *island, const mp_island_ports *ports) {
    const mp_graph *graph = island->graph;
    int32_t next = 0;
    island->sources = calloc((size_t)graph->input_count + 1, sizeof *island->sources);
    if (island->sources == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island");
    }
    for (size_t i = 0; i < ports->count; i++) {
        if (next < graph->input_count && graph->inputs[next] == ports->values[i]) {
            island->sources[next++] = (int32_t)i;
        }
    }
    return MP_OK;
}

/* `context`: NULL where no compiled model is asked for. */
static mp_status import_group(mp_island *island, const OrtGraph *group, const OrtNode *fused,
                              OrtNode **context) {
    mp_provider *provider = island->provider;
    mp_island_ports ports = {NULL, 0};
    MP_TRY(mp__island_import(provider, group, fused, &island->graph, &ports));
    mp_status status = MP_OK;
    if (provider->context != NULL) {
        status = set_sources(island, &ports);
    }
    if (status == MP_OK && provider->context != NULL && context != NULL) {
        status = mp__context_node(provider, group, fused, island->graph, ports.values, ports.count,
                                  context);
    }
    free(ports.values);
    return status;
}

static mp_status bring_graph(mp_island *island, const OrtGraph *group, const OrtNode *fused,
                             OrtNode **context) {
    const OrtNode *compiled = NULL;
    MP_TRY(mp__context_of_group(group, &compiled));
    if (compiled == NULL) {
        return import_group(island, group, fused, context);
    }
    if (island->provider->context != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the model is compiled already: leave ep.context_enable "
                                         "out, or compile the model that it was made of");
    }
    return mp__context_import(island->provider, group, compiled, fused, &island->graph);
}

/* Gives: `*out`, until destroy. */
static mp_status make(mp_provider *provider, const OrtGraph *group, const OrtNode *fused,
                      mp_island **out, OrtNode **context) {
    mp_island *island = NULL;
    MP_TRY(open_island(provider, false, &island));
    mp_status status = bring_graph(island, group, fused, context);
    if (status == MP_OK) {
        status = mp__island_name(island, fused);
    }
    if (status == MP_OK) {
        status = fill_graph(island);
    }
    if (status != MP_OK) {
        destroy(island);
        return status;
    }
    *out = island;
    return MP_OK;
}

/* ---- all of a compilation ---- */

static size_t count_graphs(const mp_island *island) {
    size_t count = 1;
    assert(island != NULL);
    for (int32_t i = 0; i < island->body_count; i++) {
        count += count_graphs(island->bodies[i].island);
    }
    return count;
}

/* Returns the end of what it has written. */
static mp_graph **list_graphs(const mp_island *island, mp_graph **out) {
    assert(island != NULL);
    *out++ = island->graph;
    for (int32_t i = 0; i < island->body_count; i++) {
        out = list_graphs(island->bodies[i].island, out);
    }
    return out;
}

/* Bodies behind the island that they are of. */
static void tell_of(mp_island *island) {
    mp__island_list_add(island);
    for (int32_t i = 0; i < island->body_count; i++) {
        tell_of(island->bodies[i].island);
    }
}

static void find_once(mp_provider *provider, const mp_graph *graph) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].node.op != NULL && mp_node_runs_once(&graph->nodes[n].node)) {
            atomic_store(&provider->runs_once, true);
        }
    }
}

static mp_status bring_constants(mp_provider *provider, OrtNodeComputeInfo *const *islands,
                                 size_t count) {
    size_t graphs = 0;
    for (size_t i = 0; i < count; i++) {
        graphs += count_graphs((const mp_island *)islands[i]);
    }
    mp_graph **list = calloc(graphs + 1, sizeof *list);
    if (list == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for islands");
    }
    mp_graph **at = list;
    for (size_t i = 0; i < count; i++) {
        at = list_graphs((const mp_island *)islands[i], at);
    }
    for (size_t i = 0; i < graphs; i++) {
        find_once(provider, list[i]);
    }
    const mp_status status = mp__weights_bring(provider, list, graphs);
    free(list);
    return status;
}

static mp_status make_all(mp_provider *provider, const OrtGraph **groups, const OrtNode **fused,
                          size_t count, OrtNodeComputeInfo **out, OrtNode **contexts) {
    MP_TRY(mp__island_keep_open(provider));
    for (size_t i = 0; i < count; i++) {
        mp_island *island = NULL;
        MP_TRY(
            make(provider, groups[i], fused[i], &island, contexts != NULL ? &contexts[i] : NULL));
        out[i] = &island->base;
        atomic_fetch_add(&provider->kernel_count, island->node_count);
    }
    MP_TRY(bring_constants(provider, out, count));
    for (size_t i = 0; i < count; i++) { /* graphs that stay as they are, for whoever looks */
        tell_of((mp_island *)out[i]);
    }
    return MP_OK;
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **groups, const OrtNode **fused, size_t count,
                          OrtNodeComputeInfo **out, OrtNode **contexts) {
    for (size_t i = 0; i < count; i++) {
        out[i] = NULL;
    }
    OrtStatus *failed =
        mp__to_ort(make_all((mp_provider *)self, groups, fused, count, out, contexts));
    for (size_t i = 0; failed != NULL && i < count; i++) {
        destroy((mp_island *)out[i]);
        out[i] = NULL;
        if (contexts != NULL && contexts[i] != NULL) {
            ORT->ReleaseNode(contexts[i]);
            contexts[i] = NULL;
        }
    }
    return failed;
}

static void release(OrtEp *self, OrtNodeComputeInfo **list, size_t count) {
    (void)self;
    for (size_t i = 0; i < count; i++) {
        destroy((mp_island *)list[i]);
    }
}

void mp__islands_install(mp_provider *provider) {
    provider->computer = mp__weights_computer(provider);
    provider->base.Compile = compile;
    provider->base.ReleaseNodeComputeInfos = release;
}
