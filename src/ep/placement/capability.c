/* capability.c - which nodes of a graph this provider takes, and which of them together.
 *
 * First pass: every node that has a kernel of ours, or is ours already (ONNX Runtime asks again
 * after it has changed the layout). Second pass: the arithmetic of shapes goes back to the CPU.
 * It starts at values that our own nodes leave in host memory: outputs of Shape and Size, the
 * number of a Loop's iteration. It follows them, also through nodes that are the CPU's anyway, as
 * long as a node's inputs are all such values, integer graph inputs or small constants; taking such
 * a node would only add copies back and forth. What the CPU makes of other values is data: nodes
 * behind it are not its neighbours for that. Third pass: where the session limits its memory, what
 * is beyond it goes back, too. Last, groups are found that run as islands (ep/island); these hold
 * what the second pass gave back as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"
#include "ep/context/context.h"
#include "ep/island/claim.h"
#include "ep/island/hold.h"
#include "ep/island/island_note.h"
#include "ep/placement/budget.h"
#include "ep/placement/lacking.h"
#include "ep/placement/left_note.h"
#include "ep/placement/nhwc.h"
#include "ep/placement/row.h"
#include "ep/placement/subgraph.h"
#include "ep/session/plugin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_CONSTANT = 100 }; /* elements */

typedef struct graph_node {
    const OrtNode *node;
    const mp_op *op; /* NULL: no kernel of ours */
    bool ours;
    bool controls;  /* If, Loop, Scan */
    bool is_held;   /* such a node, with its bodies, by an island */
    bool copies;    /* between providers */
    bool assigned;  /* before this pass */
    bool of_shapes; /* it works on values in host memory, and for the CPU */
    bool left;      /* to the CPU, therefore */
    bool of_body;   /* it reads what the body's node has in host memory, such as the iteration */
    bool in_island;
    bool is_compiled; /* an island of a compiled model */
} graph_node;

/* Values known to be in host memory. */
typedef mp_name_set value_set;

static mp_status value_set_add(value_set *set, const OrtValueInfo *value) {
    const char *name = "";
    MP_TRY(mp__value_name(value, &name));
    return mp__name_set_add(set, name, NULL);
}

static mp_status value_set_has(const value_set *set, const OrtValueInfo *value, bool *out) {
    const char *name = "";
    MP_TRY(mp__value_name(value, &name));
    *out = mp__name_set_has(set, name);
    return MP_OK;
}

/* ---- first pass ---- */

static mp_status note_missing(mp_provider *provider, const OrtNode *node) {
    MP_TRY(mp__lacking_note(node, &provider->lacking_told));
    return mp__nhwc_note_missing(node);
}

static mp_status look_up(mp_provider *provider, OrtEpGraphSupportInfo *support, graph_node *n) {
    mp_row row;
    bool fits = false;
    MP_TRY(mp__context_is_ours(n->node, &n->is_compiled));
    if (n->is_compiled) {
        return MP_OK;
    }
    MP_TRY(mp__row_of(provider, support, n->node, &row));
    n->assigned = row.assigned;
    n->controls = row.controls;
    n->copies = row.copies;
    fits = row.op != NULL;
    if (row.missing) {
        return note_missing(provider, n->node);
    }
    if (fits && row.controls) {
        MP_TRY(mp__island_holds(provider, support, n->node, &n->is_held));
    }
    if (fits && row.controls && !n->is_held) {
        MP_TRY(mp__subgraph_is_for_us(provider->factory->name->provider, n->node, &fits));
    }
    if (fits && !row.copies) {
        MP_TRY(mp__nhwc_note_taken(provider, row.op, n->node, row.version));
    }
    n->op = fits ? row.op : NULL;
    n->ours = fits;
    return MP_OK;
}

/* ---- second pass ---- */

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
    MP_TRY(mp__value_type(value, &type));
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

static mp_status prefers_cpu(const graph_node *n, const mp_values *in, const value_set *host_values,
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
    mp_values out = {NULL, 0};
    mp_status status = mp__values_of(n->node, MP_SIDE_OUT, &out);
    for (size_t i = 0; status == MP_OK && i < out.count; i++) {
        const bool host = of_shapes || (n->ours && !n->copies && mp_op_host_out(n->op, i));
        if (host && out.list[i] != NULL) {
            status = value_set_add(host_values, out.list[i]);
        }
    }
    mp__values_release(&out);
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

static mp_status reads_one_of(const value_set *set, const mp_values *in, bool *out) {
    *out = false;
    for (size_t i = 0; i < in->count && !*out; i++) {
        if (in->list[i] != NULL) {
            MP_TRY(value_set_has(set, in->list[i], out));
        }
    }
    return MP_OK;
}

/* Gives a node to the CPU that works on values in host memory. */
static mp_status leave_host_work(graph_node *n, const value_set *of_body,
                                 const value_set *host_values) {
    mp_values in = {NULL, 0};
    mp_status status = mp__values_of(n->node, MP_SIDE_IN, &in);
    if (status == MP_OK) {
        status = prefers_cpu(n, &in, host_values, &n->of_shapes);
    }
    if (status == MP_OK) {
        status = reads_one_of(of_body, &in, &n->of_body);
    }
    n->left = n->ours && n->of_shapes;
    n->ours = n->ours && !n->of_shapes;
    mp__values_release(&in);
    return status;
}

static mp_status second_pass_with(graph_node *nodes, size_t count, const value_set *of_body,
                                  value_set *host_values) {
    for (size_t i = 0; i < count; i++) { /* ORT lists them in run order */
        graph_node *n = &nodes[i];
        if (!(n->ours && n->assigned) && !n->copies) {
            MP_TRY(leave_host_work(n, of_body, host_values));
        }
        MP_TRY(note_host_outputs(n, n->of_shapes, host_values));
    }
    return MP_OK;
}

static mp_status second_pass(const OrtGraph *graph, graph_node *nodes, size_t count) {
    value_set of_body = {NULL, 0, 0};
    value_set host_values = {NULL, 0, 0};
    mp_status status = note_host_inputs(graph, &of_body);
    if (status == MP_OK) {
        status = note_host_inputs(graph, &host_values);
    }
    if (status == MP_OK) {
        status = second_pass_with(nodes, count, &of_body, &host_values);
    }
    mp__name_set_clear(&of_body);
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

/* What ONNX Runtime runs itself stays outside, and, where the user captures runs, what waits for
 * the device to know its sizes. Gives: why; NULL for what may join. */
static const char *why_outside(const mp_provider *provider, const graph_node *n) {
    const bool is_captured = provider->options.enable_cuda_graph;
    return n->is_compiled  ? "it is an island of a compiled model"
           : n->op == NULL ? "the provider cannot run it"
           : n->copies     ? "it copies values between providers"
           : n->controls && !n->is_held
               ? "ONNX Runtime runs it; its bodies have islands of their own"
           : n->assigned ? "it has been placed before"
           : n->op->finish != NULL && is_captured
               ? "the sizes of its outputs depend on data, and runs are captured"
               : NULL;
}

/* ONNX Runtime keeps compiled nodes of no body, and fails to write a model that has compiled nodes
 * and nodes with bodies that are in no island. */
static mp_status may_compile(const OrtGraph *graph, const graph_node *nodes, size_t count,
                             bool *out) {
    const OrtNode *parent = NULL;
    MP_TRY(mp__from_ort(ORT->Graph_GetParentNode(graph, &parent)));
    *out = parent == NULL;
    for (size_t i = 0; *out && i < count; i++) {
        size_t bodies = 0;
        MP_TRY(mp__from_ort(ORT->Node_GetNumSubgraphs(nodes[i].node, &bodies)));
        if (bodies > 0 && !nodes[i].is_held) {
            const char *name = "";
            MP_TRY(mp__from_ort(ORT->Node_GetName(nodes[i].node, &name)));
            MP_LOG(WARNING,
                   "no part of the model is compiled, since node '%s' has a body that no island "
                   "holds, and ONNX Runtime writes no compiled model with such nodes; run the "
                   "model as it is",
                   name);
            *out = false;
        }
    }
    return MP_OK;
}

static mp_status claim_islands(mp_provider *provider, const OrtGraph *graph,
                               OrtEpGraphSupportInfo *support, graph_node *nodes, size_t count) {
    bool wanted = mp__islands_wanted(provider);
    if (wanted && provider->context != NULL) {
        MP_TRY(may_compile(graph, nodes, count, &wanted));
    }
    if (!wanted) {
        return MP_OK;
    }
    mp_candidate *candidates = calloc(count, sizeof *candidates);
    if (candidates == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to find islands");
    }
    for (size_t i = 0; i < count; i++) {
        const graph_node *n = &nodes[i];
        const char *why = why_outside(provider, n);
        candidates[i] = (mp_candidate){.node = n->node,
                                       .op = n->op,
                                       .can_join = why == NULL,
                                       .is_held = n->is_held,
                                       .of_shapes = n->of_shapes,
                                       .of_body = n->of_body,
                                       .why = why};
    }
    mp_status status = mp__islands_find(provider, candidates, count);
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        nodes[i].in_island = candidates[i].island >= 0;
    }
    if (status == MP_OK) {
        status = mp__islands_add(provider, support, candidates, count);
        mp__island_list_outside(provider, candidates, count);
    }
    free(candidates);
    return status;
}

/* ---- islands of a compiled model ---- */

static mp_status add_compiled(OrtEpGraphSupportInfo *support, const OrtNode *node) {
    const OrtNodeFusionOptions options = {.ort_version_supported = mp_the_plugin.version,
                                          .drop_constant_initializers = true};
    return mp__from_ort(ORT_EP->EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &options));
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
    MP_TRY(claim_islands(provider, graph, support, nodes, count));
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].is_compiled) {
            MP_TRY(add_compiled(support, nodes[i].node));
        }
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
    bool held = false;
    MP_TRY_ORT(mp__island_holds_around((mp_provider *)self, support, graph, &held));
    ORT_TRY(ORT->Graph_GetNumNodes(graph, &count));
    if (count == 0 || held) {
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
