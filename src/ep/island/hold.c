/* hold.c - see hold.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/hold.h"

#include "ep/abi/bridge.h"
#include "ep/island/claim.h"
#include "ep/island/scan_axes.h"
#include "ep/placement/row.h"
#include "ep/placement/subgraph.h"

#include <stdlib.h>
#include <string.h>

enum { RUNTIME_LEAST = 31 }; /* before, a fused node lost what its bodies took from around it */

/* ---- bodies ---- */

static mp_status graph_fits(mp_provider *provider, OrtEpGraphSupportInfo *support,
                            const OrtGraph *graph, bool *out);

static mp_status bodies_fit(mp_provider *provider, OrtEpGraphSupportInfo *support,
                            const OrtNode *node, bool *out) {
    enum { MOST = 2 };
    const OrtGraph *bodies[MOST] = {NULL};
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Node_GetNumSubgraphs(node, &count)));
    *out = count > 0 && count <= MOST;
    if (*out) {
        MP_TRY(mp__from_ort(ORT->Node_GetSubgraphs(node, bodies, count, NULL)));
    }
    for (size_t i = 0; i < count && *out; i++) {
        MP_TRY(graph_fits(provider, support, bodies[i], out));
    }
    return MP_OK;
}

/* Where runs are captured: both branches of an If can be part of a graph, no loop that waits can.
 */
static bool can_be_captured(const mp_provider *provider, const mp_op *op) {
    mp_device *device = provider->unit->device;
    return strcmp(op->name, "If") == 0 && device->ops->branch_prepare(device) == MP_OK;
}

/* A node of a body, or the node itself. */
static mp_status node_fits(mp_provider *provider, OrtEpGraphSupportInfo *support,
                           const OrtNode *node, bool *out) {
    mp_row row;
    MP_TRY(mp__row_of(provider, support, node, &row));
    *out = row.op != NULL && !row.copies && !row.assigned;
    if (!*out || !row.controls) {
        return MP_OK;
    }
    if (provider->options.enable_cuda_graph && !can_be_captured(provider, row.op)) {
        *out = false;
        return MP_OK;
    }
    MP_TRY(mp__subgraph_values_fit(node, out));
    if (*out && strcmp(row.op->name, "Scan") == 0) {
        MP_TRY(mp__scan_axes_fit(node, out));
    }
    return *out ? bodies_fit(provider, support, node, out) : MP_OK;
}

static mp_status graph_fits(mp_provider *provider, OrtEpGraphSupportInfo *support,
                            const OrtGraph *graph, bool *out) {
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Graph_GetNumNodes(graph, &count)));
    const OrtNode **nodes = calloc(count + 1, sizeof *nodes);
    if (nodes == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at a body");
    }
    mp_status status = mp__from_ort(ORT->Graph_GetNodes(graph, nodes, count));
    *out = true;
    for (size_t i = 0; status == MP_OK && i < count && *out; i++) {
        status = node_fits(provider, support, nodes[i], out);
    }
    free(nodes);
    return status;
}

/* ---- the interface ---- */

mp_status mp__island_holds(mp_provider *provider, OrtEpGraphSupportInfo *support,
                           const OrtNode *node, bool *out) {
    *out = mp__islands_wanted(provider) && mp_the_plugin.runtime >= RUNTIME_LEAST;
    return *out ? node_fits(provider, support, node, out) : MP_OK;
}

mp_status mp__island_holds_around(mp_provider *provider, OrtEpGraphSupportInfo *support,
                                  const OrtGraph *graph, bool *out) {
    const OrtNode *parent = NULL;
    *out = false;
    MP_TRY(mp__from_ort(ORT->Graph_GetParentNode(graph, &parent)));
    return parent != NULL ? mp__island_holds(provider, support, parent, out) : MP_OK;
}
