/* subgraph.c - the bodies of If, Loop and Scan, as the placement of nodes sees them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/subgraph.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"
#include "ep/session/plugin.h"

#include <stdlib.h>
#include <string.h>

/* Gives: `*out`, `count` of them, until free; NULL entries for a count of 0. */
static mp_status make_list(size_t count, void *out) {
    void *list = calloc(count + 1, sizeof(void *));
    if (list == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at %zu parts of a graph",
                       count);
    }
    memcpy(out, &list, sizeof list);
    return MP_OK;
}

/* ---- who is in there ---- */

static mp_status has_ours(const char *provider, const OrtNode *node, bool *out);

static mp_status is_ours(const char *provider, const OrtNode *node, bool *out) {
    const char *ep = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetEpName(node, &ep)));
    *out = ep != NULL && strcmp(ep, provider) == 0;
    return *out ? MP_OK : has_ours(provider, node, out);
}

static mp_status graph_has_ours(const char *provider, const OrtGraph *graph, bool *out) {
    const OrtNode **nodes = NULL;
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Graph_GetNumNodes(graph, &count)));
    MP_TRY(make_list(count, &nodes));
    mp_status status = mp__from_ort(ORT->Graph_GetNodes(graph, nodes, count));
    for (size_t i = 0; status == MP_OK && i < count && !*out; i++) {
        status = is_ours(provider, nodes[i], out);
    }
    free(nodes);
    return status;
}

static mp_status has_ours(const char *provider, const OrtNode *node, bool *out) {
    const OrtGraph **graphs = NULL;
    size_t count = 0;
    *out = false;
    MP_TRY(mp__from_ort(ORT->Node_GetNumSubgraphs(node, &count)));
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(make_list(count, &graphs));
    mp_status status = mp__from_ort(ORT->Node_GetSubgraphs(node, graphs, count, NULL));
    for (size_t i = 0; status == MP_OK && i < count && !*out; i++) {
        status = graph_has_ours(provider, graphs[i], out);
    }
    free(graphs);
    return status;
}

/* ---- what goes in and out ---- */

static mp_status can_hold(const OrtValueInfo *value, bool *out) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    MP_TRY(mp__value_type(value, &type));
    *out = mp__element_known(type);
    return MP_OK;
}

static mp_status can_hold_all(const OrtNode *node, mp_side side, bool *out) {
    mp_values values;
    MP_TRY(mp__values_of(node, side, &values));
    mp_status status = MP_OK;
    for (size_t i = 0; status == MP_OK && i < values.count && *out; i++) {
        status = values.list[i] != NULL ? can_hold(values.list[i], out) : MP_OK;
    }
    mp__values_release(&values);
    return status;
}

mp_status mp__subgraph_values_fit(const OrtNode *node, bool *out) {
    *out = true;
    MP_TRY(can_hold_all(node, MP_SIDE_IN, out));
    MP_TRY(can_hold_all(node, MP_SIDE_OUT, out));
    return can_hold_all(node, MP_SIDE_IMPLICIT, out);
}

mp_status mp__subgraph_is_for_us(const char *provider, const OrtNode *node, bool *out) {
    MP_TRY(mp__subgraph_values_fit(node, out));
    return *out ? has_ours(provider, node, out) : MP_OK;
}

/* ---- where its values are ---- */

static mp_status is_loop(const OrtNode *node, bool *out) {
    const char *type = NULL;
    const char *domain = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    *out = strcmp(type, "Loop") == 0 && (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0);
    return MP_OK;
}

mp_status mp__subgraph_host_inputs(const OrtGraph *graph,
                                   const OrtValueInfo *out[MP_HOST_INPUTS_MAX], size_t *count) {
    const OrtNode *parent = NULL;
    const OrtValueInfo **inputs = NULL;
    size_t input_count = 0;
    bool loop = false;
    *count = 0;
    MP_TRY(mp__from_ort(ORT->Graph_GetParentNode(graph, &parent)));
    if (parent != NULL) {
        MP_TRY(is_loop(parent, &loop));
    }
    if (!loop) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->Graph_GetNumInputs(graph, &input_count)));
    MP_TRY(make_list(input_count, &inputs));
    const mp_status status = mp__from_ort(ORT->Graph_GetInputs(graph, inputs, input_count));
    for (size_t i = 0; status == MP_OK && i < input_count && i < MP_HOST_INPUTS_MAX; i++) {
        out[(*count)++] = inputs[i];
    }
    free(inputs);
    return status;
}
