/* import.c - see import.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/import.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_attrs.h"
#include "graph/host_value.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

typedef struct name_slot {
    const char *name; /* ORT's, during the import */
    int32_t value;
} name_slot;

typedef struct import {
    const mp_provider *provider;
    mp_graph *graph;
    void *names; /* a tree of name_slot */
} import;

static int by_name(const void *left, const void *right) {
    return strcmp(((const name_slot *)left)->name, ((const name_slot *)right)->name);
}

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile an island");
}

/* ---- values ---- */

static int32_t find(import *im, const char *name) {
    const name_slot wanted = {name, 0};
    name_slot **found = tfind(&wanted, &im->names, by_name);
    return found != NULL ? (*found)->value : MP_NO_VALUE;
}

static mp_status name_value(import *im, const char *name, int32_t value) {
    name_slot *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return no_memory();
    }
    *fresh = (name_slot){name, value};
    name_slot **kept = tsearch(fresh, &im->names, by_name);
    if (kept == NULL || *kept != fresh) {
        free(fresh);
        return kept == NULL ? no_memory()
                            : MP_FAIL(INTERNAL, "the value '%s' is there twice", name);
    }
    return MP_OK;
}

/* What ONNX Runtime knows of a value's type and shape. */
static mp_status describe(const OrtValueInfo *value, mp_tensor *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    *out = (mp_tensor){.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    MP_TRY(mp__value_tensor(value, &tensor));
    if (tensor == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetTensorElementType(tensor, &type)));
    MP_TRY(mp__from_ort(ORT->GetDimensionsCount(tensor, &rank)));
    out->type = (mp_dtype)type;
    if (rank > MP_RANK_MAX) {
        return MP_OK;
    }
    out->shape.rank = (int32_t)rank;
    return mp__from_ort(ORT->GetDimensions(tensor, out->shape.dim, rank));
}

static mp_status add_value(import *im, const OrtValueInfo *value, const char *name, int32_t *out) {
    mp_tensor tensor;
    MP_TRY(describe(value, &tensor));
    MP_TRY(mp_graph_add_value(im->graph, name, &tensor, out));
    return name_value(im, name, *out);
}

static mp_status read_constant(const OrtValue *value, mp_tensor *out) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    const void *data = NULL;
    size_t rank = 0;
    MP_TRY(
        mp__from_ort(ORT->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank)));
    MP_TRY(mp__from_ort(ORT->GetTensorData(value, &data)));
    if (rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "a constant has rank %zu; ranks up to %d are supported", rank,
                       MP_RANK_MAX);
    }
    *out = (mp_tensor){
        .type = (mp_dtype)type, .shape = {.rank = (int32_t)rank}, .data = (mp_addr)data};
    for (size_t d = 0; d < rank; d++) {
        out->shape.dim[d] = dims[d];
    }
    return MP_OK;
}

static mp_status add_constant(import *im, const OrtValueInfo *value, const char *name,
                              int32_t *out) {
    const OrtValue *held = NULL;
    mp_tensor tensor;
    size_t bytes = 0;
    bool constant = false;
    MP_TRY(mp__from_ort(ORT->ValueInfo_IsConstantInitializer(value, &constant)));
    if (constant) {
        MP_TRY(mp__from_ort(ORT->ValueInfo_GetInitializerValue(value, &held)));
    }
    if (held == NULL) {
        return MP_FAIL(INTERNAL, "nothing in its island makes the value '%s'", name);
    }
    MP_TRY(read_constant(held, &tensor));
    MP_TRY(mp_shape_bytes(&tensor.shape, tensor.type, &bytes));
    if (bytes <= MP_HOST_VALUE_BYTES) {
        MP_TRY(mp_graph_add_constant(im->graph, name, &tensor, out));
    } else {
        MP_TRY(mp_graph_add_value(im->graph, name, &tensor, out));
        im->graph->values[*out].is_constant = true;
    }
    return name_value(im, name, *out);
}

/* A value that a node reads: made before, or a constant. */
static mp_status value_read(import *im, const OrtValueInfo *value, int32_t *out) {
    const char *name = NULL;
    *out = MP_NO_VALUE;
    if (value == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, &name)));
    if (name == NULL || name[0] == '\0') {
        return MP_OK;
    }
    *out = find(im, name);
    return *out != MP_NO_VALUE ? MP_OK : add_constant(im, value, name, out);
}

static mp_status value_made(import *im, const OrtValueInfo *value, int32_t *out) {
    const char *name = NULL;
    *out = MP_NO_VALUE;
    if (value == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetValueInfoName(value, &name)));
    return name == NULL || name[0] == '\0' ? MP_OK : add_value(im, value, name, out);
}

/* ---- lists of ORT's ---- */

typedef struct value_list {
    const OrtValueInfo **values; /* owned */
    int32_t *ours;               /* owned */
    size_t count;
} value_list;

typedef OrtStatusPtr(count_fn)(const OrtNode *, size_t *);
typedef OrtStatusPtr(list_fn)(const OrtNode *, const OrtValueInfo **, size_t);
typedef mp_status(look_fn)(import *im, const OrtValueInfo *value, int32_t *out);

static void list_close(value_list *list) {
    free(list->values);
    free(list->ours);
}

static mp_status list_read(import *im, const OrtNode *node, count_fn *count_of, list_fn *list_of,
                           look_fn *look, value_list *out) {
    MP_TRY(mp__from_ort(count_of(node, &out->count)));
    out->values = calloc(out->count + 1, sizeof *out->values);
    out->ours = calloc(out->count + 1, sizeof *out->ours);
    if (out->values == NULL || out->ours == NULL) {
        return no_memory();
    }
    MP_TRY(mp__from_ort(list_of(node, out->values, out->count)));
    for (size_t i = 0; i < out->count; i++) {
        MP_TRY(look(im, out->values[i], &out->ours[i]));
    }
    return MP_OK;
}

/* ---- nodes ---- */

static mp_status read_row(const OrtNode *node, mp_node *out) {
    const char *type = NULL;
    const char *domain = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetSinceVersion(node, &out->version)));
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &out->name)));
    out->name = out->name != NULL ? out->name : "";
    out->op = mp_op_find(strcmp(domain, "ai.onnx") == 0 ? "" : domain, type, out->version);
    return out->op != NULL
               ? MP_OK
               : MP_FAIL(INTERNAL, "there is no operator %s of version %d", type, out->version);
}

static uint32_t absent_of(const value_list *made) {
    uint32_t absent = 0;
    for (size_t i = 0; i < made->count && i < 32; i++) {
        absent |= made->ours[i] == MP_NO_VALUE ? 1u << i : 0;
    }
    return absent;
}

static mp_status add_with(import *im, const OrtNode *node, value_list *in, value_list *out) {
    mp_node ours = {.options = im->provider->op_options};
    mp_attr_store *attrs = NULL;
    MP_TRY(read_row(node, &ours));
    MP_TRY(list_read(im, node, ORT->Node_GetNumInputs, ORT->Node_GetInputs, value_read, in));
    MP_TRY(list_read(im, node, ORT->Node_GetNumOutputs, ORT->Node_GetOutputs, value_made, out));
    if (in->count > INT32_MAX / 2 || out->count > INT32_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "a node with %zu inputs is too large", in->count);
    }
    ours.out_absent = absent_of(out);
    MP_TRY(mp__attrs_of_node_all(ours.op, node, &attrs));
    ours.attrs = mp__attrs_list(attrs, &ours.attr_count);
    const mp_status status =
        mp_graph_add_node(im->graph, &ours, in->ours, (int)in->count, out->ours, (int)out->count);
    mp__attrs_release(attrs);
    return status;
}

static mp_status add_node(import *im, const OrtNode *node) {
    value_list in = {NULL, NULL, 0};
    value_list out = {NULL, NULL, 0};
    const mp_status status = add_with(im, node, &in, &out);
    list_close(&in);
    list_close(&out);
    return status;
}

static mp_status add_nodes(import *im, const OrtGraph *group) {
    size_t count = 0;
    MP_TRY(mp__from_ort(ORT->Graph_GetNumNodes(group, &count)));
    const OrtNode **nodes = calloc(count + 1, sizeof *nodes);
    if (nodes == NULL) {
        return no_memory();
    }
    mp_status status = mp__from_ort(ORT->Graph_GetNodes(group, nodes, count));
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        status = add_node(im, nodes[i]);
    }
    free(nodes);
    return status;
}

/* ---- the fused node ---- */

static mp_status add_inputs(import *im, const OrtNode *fused) {
    value_list in = {NULL, NULL, 0};
    mp_status status =
        list_read(im, fused, ORT->Node_GetNumInputs, ORT->Node_GetInputs, value_made, &in);
    for (size_t i = 0; status == MP_OK && i < in.count; i++) {
        status = mp_graph_add_input(im->graph, in.ours[i]);
    }
    list_close(&in);
    return status;
}

static mp_status add_outputs(import *im, const OrtNode *fused) {
    value_list out = {NULL, NULL, 0};
    mp_status status =
        list_read(im, fused, ORT->Node_GetNumOutputs, ORT->Node_GetOutputs, value_read, &out);
    for (size_t i = 0; status == MP_OK && i < out.count; i++) {
        status = mp_graph_add_output(im->graph, out.ours[i]);
    }
    list_close(&out);
    return status;
}

mp_status mp__island_import(const mp_provider *provider, const OrtGraph *group,
                            const OrtNode *fused, mp_graph **out) {
import im = {.provider = provider };
    MP_TRY(mp_graph_create(&im.graph));
    mp_status status = add_inputs(&im, fused);
    if (status == MP_OK) {
        status = add_nodes(&im, group);
    }
    if (status == MP_OK) {
        status = add_outputs(&im, fused);
    }
    tdestroy(im.names, free);
    if (status != MP_OK) {
        mp_graph_destroy(im.graph);
        return status;
    }
    *out = im.graph;
    return MP_OK;
}
