/* island.c - what ONNX Runtime sees of an island: it is compiled, and let go.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/island.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/island/import.h"
#include "graph/pass.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void destroy(mp_island *island) {
    if (island == NULL) {
        return;
    }
    mp__island_programs_close(island);
    mp__weights_release(island->provider, &island->weights);
    mp_graph_destroy(island->graph);
    pthread_mutex_destroy(&island->lock);
    free(island->name);
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

static mp_status name_island(mp_island *island, const OrtNode *fused) {
    const char *name = "";
    MP_TRY(mp__from_ort(ORT->Node_GetName(fused, &name)));
    island->name = strdup(name != NULL ? name : "");
    if (island->name == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island's name");
    }
    island->label = mp_label_make(MP_LABEL_WORKSPACE, island->name, "values");
    return MP_OK;
}

static mp_status compile_one(mp_provider *provider, const OrtGraph *group, const OrtNode *fused,
                             OrtNodeComputeInfo **out) {
    mp_island *island = calloc(1, sizeof *island);
    if (island == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an island");
    }
    pthread_mutex_init(&island->lock, NULL);
    island->provider = provider;
    island->base = (OrtNodeComputeInfo){.ort_version_supported = mp_the_plugin.version,
                                        .CreateState = create_state,
                                        .Compute = mp__island_compute,
                                        .ReleaseState = release_state};
    int64_t rewrites = 0;
    mp_status status = name_island(island, fused);
    if (status == MP_OK) {
        status = mp__island_import(provider, group, fused, &island->graph);
    }
    if (status == MP_OK) {
        status = mp_passes_run(island->graph, secure_getenv("MILLPOND_PASSES"), &rewrites);
    }
    if (status == MP_OK) {
        status = mp__weights_make(provider, island->graph, &island->weights);
    }
    if (status != MP_OK) {
        destroy(island);
        return status;
    }
    atomic_fetch_add(&provider->kernel_count, 1);
    MP_LOG(DEBUG, "island %s: %d nodes after %lld rewrites, %d inputs, %d outputs", island->name,
           (int)island->graph->node_count, (long long)rewrites, (int)island->graph->input_count,
           (int)island->graph->output_count);
    *out = &island->base;
    return MP_OK;
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **groups, const OrtNode **fused, size_t count,
                          OrtNodeComputeInfo **out, OrtNode **contexts) {
    (void)contexts; /* only where a session asks for nodes of compiled models */
    for (size_t i = 0; i < count; i++) {
        const mp_status status = compile_one((mp_provider *)self, groups[i], fused[i], &out[i]);
        if (status != MP_OK) {
            OrtStatus *failed = mp__to_ort(status);
            while (i-- > 0) {
                destroy((mp_island *)out[i]);
                out[i] = NULL;
            }
            return failed;
        }
    }
    return NULL;
}

static void release(OrtEp *self, OrtNodeComputeInfo **list, size_t count) {
    (void)self;
    for (size_t i = 0; i < count; i++) {
        destroy((mp_island *)list[i]);
    }
}

void mp__islands_install(mp_provider *provider) {
    provider->base.Compile = compile;
    provider->base.ReleaseNodeComputeInfos = release;
}
