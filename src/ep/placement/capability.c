/* capability.c - which nodes of a graph this provider takes.
 *
 * First pass: every node that has a kernel of ours, or is ours already (ONNX Runtime asks again
 * after it has changed the layout). Second pass: the arithmetic of shapes goes back to the CPU.
 * It starts at values that our own nodes leave in host memory: outputs of Shape and Size, the
 * number of a Loop's iteration. It follows them, also through nodes that are the CPU's anyway, as
 * long as a node's inputs are all such values, integer graph inputs or small constants; taking such
 * a node would only add copies back and forth. What the CPU makes of other values is data: nodes
 * behind it are not its neighbours for that. Third pass: where the session limits its memory, what
 * is beyond it goes back, too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/island/claim.h"
#include "ep/placement/budget.h"
#include "ep/placement/lacking.h"
#include "ep/placement/left_note.h"
#include "ep/placement/nhwc.h"
#include "ep/placement/subgraph.h"
#include "ep/run/control_flow.h"
#include "ep/session/plugin.h"
#include "ep/session/refusal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_CONSTANT = 100 }; /* elements */

typedef struct graph_node {
    const OrtNode *node;
    const mp_op *op; /* NULL: no kernel of ours */
    bool ours;
    bool fits;     /* it could be ours; set with `ours`, which later passes may take back */
    bool controls; /* If, Loop, Scan */
    bool assigned; /* before this pass */
    bool left;     /* to the CPU, as arithmetic of shapes */
    bool in_island;
} graph_node;

/* Values known to be in host memory. */
typedef mp_name_set value_set;

static mp_status value_set_add(value_set *set, const OrtValueInfo *value) {
    const char *name = NULL;
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, &name)));
    return mp__name_set_add(set, name);
}

static mp_status value_set_has(const value_set *set, const OrtValueInfo *value, bool *out) {
    const char *name = NULL;
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, &name)));
    *out = mp__name_set_has(set, name);
    return MP_OK;
}

/* ---- the values of a node ---- */

typedef struct values {
    const OrtValueInfo **list; /* owned; entries may be NULL */
    size_t count;
} values;

static mp_status inputs_of(const OrtNode *node, values *out) {
    MP_TRY(mp__from_ort(ORT->Node_GetNumInputs(node, &out->count)));
    out->list = calloc(out->count + 1, sizeof *out->list);
    if (out->list == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    return mp__from_ort(ORT->Node_GetInputs(node, out->list, out->count));
}

static mp_status outputs_of(const OrtNode *node, values *out) {
    MP_TRY(mp__from_ort(ORT->Node_GetNumOutputs(node, &out->count)));
    out->list = calloc(out->count + 1, sizeof *out->list);
    if (out->list == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    return mp__from_ort(ORT->Node_GetOutputs(node, out->list, out->count));
}

/* ---- first pass ---- */

static mp_status list_fits(const values *of, bool *out) {
    *out = true;
    for (size_t i = 0; i < of->count && *out; i++) {
        const OrtTensorTypeAndShapeInfo *tensor = NULL;
        size_t rank = 0;
        if (of->list[i] != NULL) {
            MP_TRY(mp__value_tensor(of->list[i], &tensor));
        }
        if (tensor != NULL) {
            MP_TRY(mp__from_ort(ORT->GetDimensionsCount(tensor, &rank)));
        }
        *out = rank <= MP_RANK_MAX;
    }
    return MP_OK;
}

static mp_status same_value(const OrtValueInfo *a, const OrtValueInfo *b, bool *out) {
    const char *a_name = NULL;
    const char *b_name = NULL;
    *out = false;
    if (a == NULL || b == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(a, &a_name)));
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(b, &b_name)));
    *out = strcmp(a_name, b_name) == 0;
    return MP_OK;
}

/* Whether one value is wanted both on the host and on the device, as in Squeeze(axes, axes). ORT
 * keeps it in one of the two places, and a kernel that reads the other would crash. */
static mp_status is_torn(const mp_op *op, const values *in, bool *out) {
    *out = false;
    for (size_t i = 0; i < in->count && !*out; i++) {
        for (size_t j = 0; j < in->count && !*out && mp_op_host_in(op, i); j++) {
            if (!mp_op_host_in(op, j)) {
                MP_TRY(same_value(in->list[i], in->list[j], out));
            }
        }
    }
    return MP_OK;
}

/* Whether our kernel can run the node: no tensor is known to have more dimensions than kernels can
 * walk, and each input is where it should be. */
static mp_status can_run(const mp_op *op, const OrtNode *node, bool *out) {
    bool torn = false;
    values in = {NULL, 0};
    values made = {NULL, 0};
    mp_status status = inputs_of(node, &in);
    if (status == MP_OK) {
        status = is_torn(op, &in, &torn);
    }
    if (status == MP_OK) {
        status = list_fits(&in, out);
        *out = *out && !torn;
    }
    if (status == MP_OK && *out) {
        status = outputs_of(node, &made);
        if (status == MP_OK) {
            status = list_fits(&made, out);
        }
    }
    free(in.list);
    free(made.list);
    return status;
}

/* A graph that was saved by ONNX Runtime holds the copies it had put between providers. */
static const mp_op memcpy_ops[] = {
    {.domain = "", .name = "MemcpyFromHost", .since = 1, .until = 1, .host_in = 1},
    {.domain = "", .name = "MemcpyToHost", .since = 1, .until = 1, .host_out = 1},
};

static const mp_op *memcpy_find(const char *domain, const char *type) {
    for (size_t i = 0; i < MP_COUNT_OF(memcpy_ops); i++) {
        if (domain[0] == '\0' && strcmp(memcpy_ops[i].name, type) == 0) {
            return &memcpy_ops[i];
        }
    }
    return NULL;
}

static bool is_memcpy(const mp_op *op) {
    return op == &memcpy_ops[0] || op == &memcpy_ops[1];
}

static mp_status note_missing(mp_provider *provider, const OrtNode *node) {
    MP_TRY(mp__lacking_note(node, &provider->lacking_told));
    return mp__nhwc_note_missing(node);
}

static mp_status look_up(mp_provider *provider, OrtEpGraphSupportInfo *support, graph_node *n) {
    const char *ep = NULL;
    const char *type = NULL;
    const char *domain = NULL;
    int version = 0;
    const OrtKernelDef *definition = NULL;
    bool fits = false;
    MP_TRY(mp__from_ort(ORT->Node_GetEpName(n->node, &ep)));
    n->assigned = ep != NULL && ep[0] != '\0';
    const bool others = n->assigned && strcmp(ep, MP_EP_NAME) != 0;
    if (others) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT_EP->EpGraphSupportInfo_LookUpKernel(support, n->node, &definition)));
    if (definition == NULL) {
        return note_missing(provider, n->node);
    }
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(n->node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(n->node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetSinceVersion(n->node, &version)));
    domain = strcmp(domain, "ai.onnx") == 0 ? "" : domain;
    n->op = memcpy_find(domain, type);
    n->ours = n->op != NULL;
    if (n->ours) {
        return MP_OK;
    }
    const mp_op *control = mp__control_find(domain, type, version);
    const mp_op *op = control != NULL ? control : mp_op_find(domain, type, version);
    bool refused = op == NULL;
    if (!refused) {
        MP_TRY(mp__refused(provider, op, n->node, version, &refused));
    }
    if (!refused) {
        MP_TRY(can_run(op, n->node, &fits));
    }
    if (control != NULL && fits) {
        MP_TRY(mp__subgraph_is_for_us(n->node, &fits));
    }
    if (fits) {
        MP_TRY(mp__nhwc_note_taken(provider, op, n->node, version));
    }
    n->op = fits ? op : NULL;
    n->ours = n->fits = fits;
    n->controls = control != NULL;
    return MP_OK;
}

/* ---- second pass ---- */

static mp_status element_type(const OrtValueInfo *value, ONNXTensorElementDataType *type) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    *type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    MP_TRY(mp__value_tensor(value, &tensor));
    return tensor == NULL ? MP_OK : mp__from_ort(ORT->GetTensorElementType(tensor, type));
}

static bool is_float(ONNXTensorElementDataType type) {
    return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ||
           type == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
}

/* The CPU has few kernels for these. */
static bool is_narrow_float(ONNXTensorElementDataType type) {
    return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ||
           type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 ||
           (type >= ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN &&
            type <= ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ) ||
           type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1;
}

static mp_status is_small_constant(const OrtValueInfo *value, bool *out) {
    bool constant = false;
    const OrtValue *tensor = NULL;
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t count = 0;
    *out = false;
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, &constant)));
    if (!constant) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->ValueInfo_GetInitializerValue(value, &tensor)));
    if (tensor == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetTensorTypeAndShape(tensor, &info)));
    const mp_status status = mp__from_ort(ORT->GetTensorShapeElementCount(info, &count));
    ORT->ReleaseTensorTypeAndShapeInfo(info);
    *out = status == MP_OK && count <= SMALL_CONSTANT;
    return status;
}

static mp_status is_graph_input(const OrtValueInfo *value, bool *out) {
    bool required = false;
    bool optional = false;
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsRequiredGraphInput(value, &required)));
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsOptionalGraphInput(value, &optional)));
    *out = required || optional;
    return MP_OK;
}

/* Whether input `i` speaks for the CPU; `*host` tells that it is in host memory already. */
static mp_status input_prefers_cpu(const mp_op *op, size_t i, const OrtValueInfo *value,
                                   const value_set *host_values, bool *prefers, bool *host) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    bool graph_input = false;
    bool constant = false;
    *host = false;
    *prefers = false;
    MP_TRY(element_type(value, &type));
    if (is_narrow_float(type)) {
        return MP_OK;
    }
    MP_TRY(is_small_constant(value, &constant));
    MP_TRY(is_graph_input(value, &graph_input));
    if (constant || (graph_input && !is_float(type))) { /* a float input is data, not a shape */
        *prefers = true;
        return constant ? MP_OK : value_set_has(host_values, value, host);
    }
    const bool wanted_there = op != NULL && mp_op_host_in(op, i);
    MP_TRY(value_set_has(host_values, value, host));
    *prefers = *host && !wanted_there;
    return MP_OK;
}

static mp_status prefers_cpu(const graph_node *n, const values *in, const value_set *host_values,
                             bool *out) {
    bool any_host = false;
    *out = false;
    for (size_t i = 0; i < in->count; i++) {
        bool prefers = false;
        bool host = false;
        if (in->list[i] == NULL) {
            continue;
        }
        MP_TRY(input_prefers_cpu(n->op, i, in->list[i], host_values, &prefers, &host));
        if (!prefers) {
            return MP_OK;
        }
        any_host = any_host || host;
    }
    *out = any_host;
    return MP_OK;
}

/* Notes which outputs of the node are host values: all of one that is `of_shapes`, those that a
 * node of ours leaves in host memory. A copy to the host is of data. */
static mp_status note_host_outputs(const graph_node *n, bool of_shapes, value_set *host_values) {
    values out = {NULL, 0};
    mp_status status = outputs_of(n->node, &out);
    for (size_t i = 0; status == MP_OK && i < out.count; i++) {
        const bool host = of_shapes || (n->ours && !is_memcpy(n->op) && mp_op_host_out(n->op, i));
        if (host && out.list[i] != NULL) {
            status = value_set_add(host_values, out.list[i]);
        }
    }
    free(out.list);
    return status;
}

static mp_status note_host_inputs(const OrtGraph *graph, value_set *host_values) {
    const OrtValueInfo *inputs[MP_HOST_INPUTS_MAX] = {NULL};
    size_t count = 0;
    MP_TRY(mp__subgraph_host_inputs(graph, inputs, &count));
    for (size_t i = 0; i < count; i++) {
        MP_TRY(value_set_add(host_values, inputs[i]));
    }
    return MP_OK;
}

static mp_status second_pass(const OrtGraph *graph, graph_node *nodes, size_t count) {
    value_set host_values = {NULL, 0, 0};
    mp_status status = note_host_inputs(graph, &host_values);
    for (size_t i = 0; status == MP_OK && i < count; i++) { /* ORT lists them in run order */
        graph_node *n = &nodes[i];
        bool of_shapes = false;
        if (!(n->ours && n->assigned) && !is_memcpy(n->op)) {
            values in = {NULL, 0};
            status = inputs_of(n->node, &in);
            if (status == MP_OK) {
                status = prefers_cpu(n, &in, &host_values, &of_shapes);
            }
            n->left = n->ours && of_shapes;
            n->ours = n->ours && !of_shapes;
            free(in.list);
        }
        if (status == MP_OK) {
            status = note_host_outputs(n, of_shapes, &host_values);
        }
    }
    mp__name_set_clear(&host_values);
    return status;
}

/* ---- third pass ---- */

static void say_what_is_left(const mp_provider *provider, const graph_node *first, size_t left) {
    const char *name = "";
    const char *type = "";
    ORT->ReleaseStatus(ORT->Node_GetName(first->node, &name));
    ORT->ReleaseStatus(ORT->Node_GetOperatorType(first->node, &type));
    MP_LOG(INFO,
           "partition_memory_limit of %zu bytes: %zu nodes from '%s' (%s) on are left to other "
           "providers; weights and outputs of those before it need %" PRIu64 " bytes",
           provider->options.partition_memory_limit, left, name, type, provider->budget->used);
}

/* From the first node on whose memory is beyond the session's limit, nodes are left to others: a
 * prefix on the device needs fewer copies than what is scattered. Nodes that have been given to us
 * before (ONNX Runtime asks again) stay. */
static mp_status third_pass(mp_provider *provider, graph_node *nodes, size_t count) {
    const graph_node *first = NULL;
    size_t left = 0;
    if (provider->options.partition_memory_limit == 0) {
        return MP_OK;
    }
    if (provider->budget == NULL) {
        provider->budget = calloc(1, sizeof *provider->budget);
    }
    if (provider->budget == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    for (size_t i = 0; i < count; i++) {
        graph_node *n = &nodes[i];
        bool fits = first == NULL;
        if (!n->ours) {
            continue;
        }
        if (fits || n->assigned) {
            MP_TRY(mp__budget_take(provider->budget, provider->options.partition_memory_limit,
                                   n->op, n->node, n->assigned, &fits));
        }
        n->ours = fits;
        left += !fits;
        first = first == NULL && !fits ? n : first;
    }
    if (first != NULL) {
        say_what_is_left(provider, first, left);
    }
    return MP_OK;
}

/* ---- islands: what one of them can hold runs there, shapes too ---- */

static mp_status claim_islands(const mp_provider *provider, OrtEpGraphSupportInfo *support,
                               graph_node *nodes, size_t count) {
    if (!mp__islands_wanted(provider)) {
        return MP_OK;
    }
    mp_candidate *candidates = calloc(count, sizeof *candidates);
    if (candidates == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to find islands");
    }
    for (size_t i = 0; i < count; i++) {
        const graph_node *n = &nodes[i];
        candidates[i] = (mp_candidate){.node = n->node,
                                       .op = n->op,
                                       .can_join = n->fits && !n->assigned && !n->controls &&
                                                   n->op->finish == NULL};
    }
    mp_status status = mp__islands_find(provider, candidates, count);
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        nodes[i].in_island = candidates[i].island >= 0;
    }
    if (status == MP_OK) {
        status = mp__islands_add(support, candidates, count);
    }
    free(candidates);
    return status;
}

/* ---- all ---- */

static mp_status partition(mp_provider *provider, const OrtGraph *graph,
                           OrtEpGraphSupportInfo *support, graph_node *nodes, const OrtNode **list,
                           size_t count) {
    MP_TRY(mp__from_ort(ORT->Graph_GetNodes(graph, list, count)));
    for (size_t i = 0; i < count; i++) {
        nodes[i].node = list[i];
        MP_TRY(look_up(provider, support, &nodes[i]));
    }
    MP_TRY(second_pass(graph, nodes, count));
    MP_TRY(third_pass(provider, nodes, count));
    MP_TRY(claim_islands(provider, support, nodes, count));
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].ours && !nodes[i].in_island) {
            MP_TRY(mp__from_ort(ORT_EP->EpGraphSupportInfo_AddSingleNode(support, nodes[i].node)));
        }
        if (nodes[i].left && !nodes[i].in_island) {
            mp__left_note_add(provider, graph, nodes[i].node);
        }
    }
    mp__left_note_publish(provider);
    return MP_OK;
}

OrtStatus *mp__get_capability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *support) {
    size_t count = 0;
    ORT_TRY(ORT->Graph_GetNumNodes(graph, &count));
    if (count == 0) {
        return NULL;
    }
    graph_node *nodes = calloc(count, sizeof *nodes);
    const OrtNode **list = calloc(count, sizeof *list);
    const mp_status status =
        nodes != NULL && list != NULL
            ? partition((mp_provider *)self, graph, support, nodes, list, count)
            : MP_FAIL(OUT_OF_MEMORY,
                      "cannot allocate host memory to partition a graph of %zu nodes", count);
    free(list);
    free(nodes);
    return mp__to_ort(status);
}
