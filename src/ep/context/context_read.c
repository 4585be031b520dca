/* context_read.c - a node EPContext becomes an island's graph.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"
#include "ep/context/context.h"
#include "ep/context/context_file.h"
#include "ep/run/call.h"
#include "ep/session/refusal.h"
#include "graph/store.h"

#include <stdlib.h>
#include <string.h>

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a compiled model");
}

/* ---- attributes ---- */

/* Gives: `*out`, with a 0 behind it, until free; NULL for an attribute that is not there, or is no
 * text. */
static mp_status read_text(const OrtNode *node, const char *name, char **out, size_t *size) {
    const OrtOpAttr *found = NULL;
    OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
    OrtStatus *missing = ORT->Node_GetAttributeByName(node, name, &found);
    *out = NULL;
    *size = 0;
    if (missing != NULL || found == NULL) {
        ORT->ReleaseStatus(missing);
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->OpAttr_GetType(found, &type)));
    if (type != ORT_OP_ATTR_STRING) {
        return MP_OK;
    }
    ORT->ReleaseStatus(ORT->ReadOpAttr(found, type, NULL, 0, size)); /* says how much */
    *out = calloc(1, *size + 1);
    if (*out == NULL) {
        return no_memory();
    }
    return *size > 0 ? mp__from_ort(ORT->ReadOpAttr(found, type, *out, *size, size)) : MP_OK;
}

static bool is_embedded(const OrtNode *node) {
    const OrtOpAttr *found = NULL;
    int64_t mode = 1; /* where the node does not say it */
    size_t size = 0;
    OrtStatus *missing = ORT->Node_GetAttributeByName(node, "embed_mode", &found);
    if (missing == NULL && found != NULL) {
        ORT->ReleaseStatus(ORT->ReadOpAttr(found, ORT_OP_ATTR_INT, &mode, sizeof mode, &size));
    }
    ORT->ReleaseStatus(missing);
    return mode != 0;
}

static mp_status is_context(const OrtNode *node, bool *out) {
    const char *type = NULL;
    const char *domain = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    *out = strcmp(type, MP_CONTEXT_OPERATOR) == 0 && strcmp(domain, MP_CONTEXT_DOMAIN) == 0;
    return MP_OK;
}

mp_status mp__context_is_ours(const OrtNode *node, bool *out) {
    char *source = NULL;
    char *maker = NULL;
    size_t size = 0;
    MP_TRY(is_context(node, out));
    if (!*out) {
        return MP_OK;
    }
    mp_status status = read_text(node, "source", &source, &size);
    if (status == MP_OK) {
        status = read_text(node, "ep_sdk_version", &maker, &size);
    }
    *out = source != NULL && maker != NULL && mp__ep_name_is_known(source) &&
           strncmp(maker, MP_CONTEXT_MAKER, strlen(MP_CONTEXT_MAKER)) == 0;
    free(source);
    free(maker);
    return status;
}

mp_status mp__context_of_group(const OrtGraph *group, const OrtNode **out) {
    size_t count = 0;
    bool is = false;
    *out = NULL;
    MP_TRY(mp__from_ort(ORT->Graph_GetNumNodes(group, &count)));
    if (count != 1) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->Graph_GetNodes(group, out, count)));
    MP_TRY(is_context(*out, &is));
    *out = is ? *out : NULL;
    return MP_OK;
}

/* ---- what is kept ---- */

static mp_status read_file(const mp_provider *provider, const OrtGraph *group, const char *name,
                           unsigned char **out, size_t *size) {
    const char *model = "";
    char *path = NULL;
    MP_TRY(mp__from_ort(ORT->Graph_GetModelPath(group, &model)));
    if (model == NULL || model[0] == '\0') { /* it came from memory */
        model = provider->context_path != NULL ? provider->context_path : "";
    }
    MP_TRY(mp__context_file_path(model, name, &path));
    const mp_status status = mp__context_file_read(path, MP_STORE_BYTES_MAX, out, size);
    free(path);
    return status;
}

/* Gives: `*out`, until free. */
static mp_status read_content(const mp_provider *provider, const OrtGraph *group,
                              const OrtNode *node, unsigned char **out, size_t *size) {
    char *text = NULL;
    MP_TRY(read_text(node, "ep_cache_context", &text, size));
    if (text == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "it has no ep_cache_context");
    }
    if (is_embedded(node)) {
        *out = (unsigned char *)text;
        return MP_OK;
    }
    const mp_status status = read_file(provider, group, text, out, size);
    free(text);
    return status;
}

/* ---- ports ---- */

static mp_status describe(const OrtValueInfo *value, mp_store_port *port) {
    const OrtValue *held = NULL;
    MP_TRY(mp__value_name(value, &port->name));
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, &port->is_constant)));
    if (!port->is_constant) {
        return mp__value_describe(value, &port->tensor);
    }
    MP_TRY(mp__from_ort(ORT->ValueInfo_GetInitializerValue(value, &held)));
    return held != NULL ? mp__call_read(held, (mp_port){"constant", 0, port->name}, &port->tensor,
                                        &port->tensor.data)
                        : MP_FAIL(INVALID_ARGUMENT, "the constant '%s' is missing", port->name);
}

/* Gives: `*out`, until free. */
static mp_status ports_of(const OrtNode *node, mp_store_port **out, size_t *count) {
    mp_values in = {NULL, 0};
    MP_TRY(mp__values_of(node, MP_SIDE_IN, &in));
    *count = in.count;
    *out = calloc(in.count + 1, sizeof **out);
    mp_status status = *out != NULL ? MP_OK : no_memory();
    for (size_t i = 0; status == MP_OK && i < in.count; i++) {
        status = describe(in.list[i], &(*out)[i]);
    }
    mp__values_release(&in);
    return status;
}

/* ---- ends ---- */

/* Which of the node's values each of the fused node's is. Gives: `*out`, until free. */
static mp_status match(const OrtNode *node, const OrtNode *fused, mp_side side, size_t most,
                       int32_t **out, int32_t *count) {
    mp_values theirs = {NULL, 0};
    mp_values ours = {NULL, 0};
    mp_status status = mp__values_of(fused, side, &theirs);
    if (status == MP_OK) {
        status = mp__values_of(node, side, &ours);
    }
    *out = calloc(theirs.count + 1, sizeof **out);
    if (status == MP_OK && *out == NULL) {
        status = no_memory();
    }
    for (size_t i = 0; status == MP_OK && i < theirs.count; i++) {
        const char *wanted = "";
        const char *name = NULL;
        size_t k = 0;
        status = mp__value_name(theirs.list[i], &wanted);
        for (; status == MP_OK && k < ours.count; k++) {
            status = mp__value_name(ours.list[k], &name);
            if (status == MP_OK && strcmp(name, wanted) == 0) {
                break;
            }
        }
        if (status == MP_OK && k >= MP_MIN(ours.count, most)) {
            status = MP_FAIL(INVALID_ARGUMENT, "it does not make '%s'", wanted);
        }
        (*out)[i] = (int32_t)k;
    }
    *count = (int32_t)theirs.count;
    mp__values_release(&theirs);
    mp__values_release(&ours);
    return status;
}

/* Outputs are those that ONNX Runtime asks for, of the types that it has them of. */
static mp_status settle_outputs(const OrtNode *node, const OrtNode *fused, mp_graph *graph) {
    int32_t *of = NULL;
    int32_t count = 0;
    int32_t *before = NULL;
    mp_status status = match(node, fused, MP_SIDE_OUT, (size_t)graph->output_count, &of, &count);
    if (status == MP_OK) {
        before = calloc((size_t)graph->output_count + 1, sizeof *before);
        status = before != NULL ? MP_OK : no_memory();
    }
    if (status == MP_OK) {
        memcpy(before, graph->outputs, (size_t)graph->output_count * sizeof *before);
        graph->output_count = 0;
    }
    for (int32_t i = 0; status == MP_OK && i < count; i++) {
        status = mp_graph_add_output(graph, before[of[i]]);
    }
    free(of);
    free(before);
    return status;
}

static mp_status check_types(const OrtNode *fused, const mp_graph *graph) {
    mp_values made = {NULL, 0};
    MP_TRY(mp__values_of(fused, MP_SIDE_OUT, &made));
    mp_status status = MP_OK;
    for (size_t i = 0; status == MP_OK && i < made.count; i++) {
        mp_tensor theirs;
        const mp_value *ours = &graph->values[graph->outputs[i]];
        status = mp__value_describe(made.list[i], &theirs);
        if (status == MP_OK && theirs.type != ours->tensor.type) {
            status =
                MP_FAIL(INVALID_ARGUMENT, "'%s' is of another type than in the model", ours->name);
        }
    }
    mp__values_release(&made);
    return status;
}

/* The fused node reads the inputs that are no constants, in the node's order. */
static mp_status check_inputs(const OrtNode *fused, const mp_store_port *ports, size_t count) {
    mp_values in = {NULL, 0};
    size_t next = 0;
    MP_TRY(mp__values_of(fused, MP_SIDE_IN, &in));
    mp_status status = MP_OK;
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        const char *name = NULL;
        if (ports[i].is_constant) {
            continue;
        }
        if (next < in.count) {
            status = mp__value_name(in.list[next++], &name);
        }
        if (status == MP_OK && (name == NULL || strcmp(name, ports[i].name) != 0)) {
            status = MP_FAIL(INVALID_ARGUMENT, "its input '%s' comes twice or not at all",
                             ports[i].name);
        }
    }
    mp__values_release(&in);
    return status;
}

/* ---- all ---- */

static mp_status check_machine(mp_provider *provider, const mp_graph *graph) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_node *node = &graph->nodes[n].node;
        if (mp__lacks_conv(provider, node->op)) {
            return MP_FAIL(UNSUPPORTED,
                           "it holds '%s', a %s, and this session has no convolutions: compile the "
                           "model again where it is to run",
                           node->name, node->op->name);
        }
    }
    return MP_OK;
}

static mp_status load(mp_provider *provider, const OrtGraph *group, const OrtNode *node,
                      const OrtNode *fused, mp_graph **out) {
    mp_store_port *ports = NULL;
    unsigned char *bytes = NULL;
    size_t count = 0;
    size_t size = 0;
    mp_status status = ports_of(node, &ports, &count);
    if (status == MP_OK) {
        status = check_inputs(fused, ports, count);
    }
    if (status == MP_OK) {
        status = read_content(provider, group, node, &bytes, &size);
    }
    if (status == MP_OK) {
        status =
            mp_graph_load(bytes, size, MILLPOND_VERSION, &provider->op_options, ports, count, out);
    }
    free(bytes);
    free(ports);
    MP_TRY(status);
    mp_graph_suit(*out, &provider->computer);
    status = settle_outputs(node, fused, *out);
    if (status == MP_OK) {
        status = check_types(fused, *out);
    }
    if (status == MP_OK) {
        status = check_machine(provider, *out);
    }
    if (status != MP_OK) {
        mp_graph_destroy(*out);
        *out = NULL;
    }
    return status;
}

mp_status mp__context_import(mp_provider *provider, const OrtGraph *group, const OrtNode *node,
                             const OrtNode *fused, mp_graph **out) {
    const char *name = "";
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &name)));
    const mp_status status = load(provider, group, node, fused, out);
    return status == MP_OK ? MP_OK
                           : mp__fail(status, "the compiled part '%s' cannot be used: %s", name,
                                      mp_error_message());
}
