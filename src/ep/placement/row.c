/* row.c - see row.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/row.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"
#include "ep/run/control_flow.h"
#include "ep/session/refusal.h"

#include <string.h>

static mp_status list_fits(const mp_values *of, bool *out) {
    *out = true;
    for (size_t i = 0; i < of->count && *out; i++) {
        const OrtTensorTypeAndShapeInfo *tensor = NULL;
        ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        size_t rank = 0;
        if (of->list[i] != NULL) {
            MP_TRY(mp__value_tensor(of->list[i], &tensor, &type, &rank));
        }
        *out = rank <= MP_RANK_MAX;
    }
    return MP_OK;
}

static mp_status same_value(const OrtValueInfo *a, const OrtValueInfo *b, bool *out) {
    const char *a_name = "";
    const char *b_name = "";
    MP_TRY(mp__value_name(a, &a_name));
    MP_TRY(mp__value_name(b, &b_name));
    *out = a_name[0] != '\0' && strcmp(a_name, b_name) == 0;
    return MP_OK;
}

/* Whether one value is wanted both on the host and on the device, as in Squeeze(axes, axes). ORT
 * keeps it in one of the two places, and a kernel that reads the other would crash. */
static mp_status is_torn(const mp_op *op, const mp_values *in, bool *out) {
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
    mp_values in = {NULL, 0};
    mp_values made = {NULL, 0};
    mp_status status = mp__values_of(node, MP_SIDE_IN, &in);
    if (status == MP_OK) {
        status = is_torn(op, &in, &torn);
    }
    if (status == MP_OK) {
        status = list_fits(&in, out);
        *out = *out && !torn;
    }
    if (status == MP_OK && *out) {
        status = mp__values_of(node, MP_SIDE_OUT, &made);
        if (status == MP_OK) {
            status = list_fits(&made, out);
        }
    }
    mp__values_release(&in);
    mp__values_release(&made);
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

static mp_status find_row(mp_provider *provider, const OrtNode *node, mp_row *row) {
    const char *type = NULL;
    const char *domain = NULL;
    bool refused = false;
    bool fits = false;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetSinceVersion(node, &row->version)));
    domain = strcmp(domain, "ai.onnx") == 0 ? "" : domain;
    row->op = memcpy_find(domain, type);
    row->copies = row->op != NULL;
    if (row->copies) {
        return MP_OK;
    }
    const mp_op *control = mp__control_find(domain, type, row->version);
    const mp_op *op = control != NULL ? control : mp_op_find(domain, type, row->version);
    row->controls = control != NULL;
    if (op == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__refused(provider, op, node, row->version, &refused));
    if (!refused) {
        MP_TRY(can_run(op, node, &fits));
    }
    row->op = fits ? op : NULL;
    return MP_OK;
}

mp_status mp__row_of(mp_provider *provider, OrtEpGraphSupportInfo *support, const OrtNode *node,
                     mp_row *out) {
    const char *ep = NULL;
    const OrtKernelDef *definition = NULL;
    *out = (mp_row){.op = NULL};
    MP_TRY(mp__from_ort(ORT->Node_GetEpName(node, &ep)));
    out->assigned = ep != NULL && ep[0] != '\0';
    if (out->assigned && strcmp(ep, provider->factory->name->provider) != 0) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT_EP->EpGraphSupportInfo_LookUpKernel(support, node, &definition)));
    out->missing = definition == NULL;
    return out->missing ? MP_OK : find_row(provider, node, out);
}
