/* nhwc.c - channels last.
 *
 * With prefer_nhwc, ONNX Runtime asks for each operator that it could rewrite, and puts the nodes
 * that we want into the domain MP_NHWC_DOMAIN. A rewritten node has no other provider to go to, so
 * an operator is converted only where the operator table has it in that domain too, and every node
 * of it that was taken can be run there. ONNX Runtime asks by operator and not by node: one node
 * that cannot be converted keeps the others as they are. It has asked which nodes we take before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/nhwc.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"
#include "op/core/channels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AS_IT_IS = 0, CONVERT = 1, ORT_DECIDES = -1 };

OrtStatus *mp__preferred_layout(OrtEp *self, OrtEpDataLayout *out) {
    const mp_provider *provider = (const mp_provider *)self;
    *out = provider->options.prefer_nhwc ? OrtEpDataLayout_NHWC : OrtEpDataLayout_NCHW;
    return NULL;
}

/* Any row of the operator with channels last, or NULL. */
static const mp_op *twin_of(const char *name) {
    for (size_t f = 0; f < mp_op_family_count; f++) {
        for (size_t i = 0; i < mp_op_families[f]->count; i++) {
            const mp_op *op = &mp_op_families[f]->ops[i];
            if (strcmp(op->domain, MP_NHWC_DOMAIN) == 0 && strcmp(op->name, name) == 0) {
                return op;
            }
        }
    }
    return NULL;
}

static bool is_kept(const mp_provider *provider, const char *name) {
    for (int i = 0; i < provider->kept_count; i++) {
        if (strcmp(provider->kept[i], name) == 0) {
            return true;
        }
    }
    return false;
}

OrtStatus *mp__should_convert(OrtEp *self, const char *domain, const char *name,
                              OrtEpDataLayout layout, int *out) {
    const mp_provider *provider = (const mp_provider *)self;
    const bool onnx = domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
    const bool microsoft = strcmp(domain, "com.microsoft") == 0 && strcmp(name, "GridSample") == 0;
    if (layout != OrtEpDataLayout_NHWC) {
        *out = ORT_DECIDES;
    } else {
        *out = (onnx || microsoft) && twin_of(name) != NULL && !is_kept(provider, name) ? CONVERT
                                                                                        : AS_IT_IS;
    }
    return NULL;
}

/* ---- which nodes can be converted ---- */

static mp_status element_type(const OrtValueInfo *value, mp_dtype *out) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    MP_TRY(mp__value_type(value, &type));
    *out = (mp_dtype)type;
    return MP_OK;
}

static mp_status first_type(const OrtNode *node, mp_dtype *out) {
    mp_values in;
    *out = MP_NONE;
    MP_TRY(mp__values_of(node, MP_SIDE_IN, &in));
    const mp_status status =
        in.count > 0 && in.list[0] != NULL ? element_type(in.list[0], out) : MP_OK;
    mp__values_release(&in);
    return status;
}

/* The types that the first input may have, once rewritten. ONNX Runtime's schemas for rewritten
 * nodes lag behind ONNX's. */
static mp_status types_after(const char *name, int version, mp_dtypes *out) {
    OrtOpSchema *schema = NULL;
    int since = 0;
    bool found = false;
    *out = 0;
    MP_TRY(mp__from_ort(ORT_EP->GetOpSchema(name, version, MP_NHWC_DOMAIN, &schema)));
    if (schema == NULL) {
        return MP_OK;
    }
    mp_status status = mp__from_ort(ORT_EP->OpSchema_GetSinceVersion(schema, &since));
    const mp_op *row = status == MP_OK ? mp_op_find(MP_NHWC_DOMAIN, name, since) : NULL;
    if (row != NULL) {
        status = mp__from_ort(mp__schema_types(schema, row->types[0].name, &found, out));
        *out &= row->types[0].types;
    }
    ORT_EP->ReleaseOpSchema(schema);
    return status;
}

/* The version of ONNX's operators that the node's model imports; 0 where it does not say. */
static mp_status imported_version(const OrtNode *node, int *out) {
    enum { DOMAINS_MAX = 64 };
    const OrtGraph *graph = NULL;
    const char *domains[DOMAINS_MAX];
    int64_t versions[DOMAINS_MAX];
    size_t count = 0;
    *out = 0;
    MP_TRY(mp__from_ort(ORT->Node_GetGraph(node, &graph)));
    MP_TRY(mp__from_ort(ORT->Graph_GetNumOperatorSets(graph, &count)));
    if (count > DOMAINS_MAX) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->Graph_GetOperatorSets(graph, domains, versions, count)));
    for (size_t i = 0; i < count; i++) {
        if (domains[i][0] == '\0' || strcmp(domains[i], "ai.onnx") == 0) {
            *out = (int)versions[i];
        }
    }
    return MP_OK;
}

static mp_status can_convert(const mp_op *op, const OrtNode *node, int version, bool *out) {
    size_t outputs = 0;
    mp_dtype type = MP_NONE;
    mp_dtypes types = 0;
    if (op->domain[0] != '\0') { /* Microsoft's operator is rewritten to ONNX's */
        MP_TRY(imported_version(node, &version));
    }
    MP_TRY(mp__from_ort(ORT->Node_GetNumOutputs(node, &outputs)));
    MP_TRY(first_type(node, &type));
    MP_TRY(types_after(op->name, version, &types));
    /* Of several outputs ONNX Runtime turns back the first only. */
    *out = outputs == 1 && (types & MP_BIT(type)) != 0;
    return MP_OK;
}

mp_status mp__nhwc_note_taken(mp_provider *provider, const mp_op *op, const OrtNode *node,
                              int version) {
    bool convertible = false;
    if (!provider->options.prefer_nhwc || strcmp(op->domain, MP_NHWC_DOMAIN) == 0 ||
        twin_of(op->name) == NULL || is_kept(provider, op->name)) {
        return MP_OK;
    }
    MP_TRY(can_convert(op, node, version, &convertible));
    if (!convertible && provider->kept_count < MP_KEPT_MAX) {
        provider->kept[provider->kept_count++] = op->name;
        MP_LOG(INFO, "%s keeps its layout: a node of version %d cannot be rewritten", op->name,
               version);
    }
    return MP_OK;
}

/* ---- what went wrong ---- */

/* The element types of the node's inputs, as ONNX names them. */
static mp_status list_types(const OrtNode *node, char *text, size_t size) {
    mp_values in;
    size_t used = 0;
    mp_status status = MP_OK;
    text[0] = '\0';
    MP_TRY(mp__values_of(node, MP_SIDE_IN, &in));
    for (size_t i = 0; status == MP_OK && i < in.count && used < size; i++) {
        mp_dtype type = MP_NONE;
        status = in.list[i] != NULL ? element_type(in.list[i], &type) : MP_OK;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 in.list[i] != NULL ? mp_dtype_name(type) : "nothing");
    }
    mp__values_release(&in);
    return status;
}

/* The names of the schema's type constraints; "none" where there is no such schema. */
static mp_status list_constraints(const char *type, int version, char *text, size_t size) {
    OrtOpSchema *schema = NULL;
    size_t count = 0;
    size_t used = 0;
    snprintf(text, size, "none");
    MP_TRY(mp__from_ort(ORT_EP->GetOpSchema(type, version, MP_NHWC_DOMAIN, &schema)));
    if (schema == NULL) {
        return MP_OK;
    }
    mp_status status = mp__from_ort(ORT_EP->OpSchema_GetTypeConstraintCount(schema, &count));
    for (size_t i = 0; status == MP_OK && i < count && used < size; i++) {
        const OrtOpSchemaTypeConstraint *constraint = NULL;
        const char *name = "";
        status = mp__from_ort(ORT_EP->OpSchema_GetTypeConstraint(schema, i, &constraint));
        if (status == MP_OK) {
            status =
                mp__from_ort(ORT_EP->OpSchemaTypeConstraint_GetTypeParamName(constraint, &name));
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", name);
    }
    ORT_EP->ReleaseOpSchema(schema);
    return status;
}

/* What the provider's row has: "T of float, float16"; "none" where there is no row. */
static void list_row(const mp_op *row, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "none");
    for (int c = 0; row != NULL && c < MP_CONSTRAINTS_MAX && row->types[c].name != NULL; c++) {
        const char *before = " of ";
        if (used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", c > 0 ? "; " : "",
                                     row->types[c].name);
        }
        for (unsigned t = 1; t < MP_DTYPE_END && used < size; t++) {
            if ((row->types[c].types & MP_BIT(t)) != 0) {
                used += (size_t)snprintf(text + used, size - used, "%s%s", before,
                                         mp_dtype_name((mp_dtype)t));
                before = ", ";
            }
        }
    }
}

mp_status mp__nhwc_note_missing(const OrtNode *node) {
    const char *domain = NULL;
    const char *type = NULL;
    const char *name = NULL;
    char types[128];
    char expected[128];
    char registered[256];
    int version = 0;
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    if (domain == NULL || strcmp(domain, MP_NHWC_DOMAIN) != 0) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &name)));
    MP_TRY(mp__from_ort(ORT->Node_GetSinceVersion(node, &version)));
    MP_TRY(list_types(node, types, sizeof types));
    MP_TRY(list_constraints(type, version, expected, sizeof expected));
    const mp_op *row = mp_op_find(MP_NHWC_DOMAIN, type, version);
    list_row(row != NULL ? row : twin_of(type), registered, sizeof registered);
    MP_LOG(
        WARNING,
        "node '%s' was rewritten for channels last, and there is no kernel for %s version %d of "
        "domain %s with inputs of %s (type constraints of its schema: %s; of this provider's row: "
        "%s); without prefer_nhwc it stays as it was",
        name, type, version, domain, types, expected, registered);
    return MP_OK;
}
