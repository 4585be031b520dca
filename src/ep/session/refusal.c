/* refusal.c - what cannot be run is left to the CPU's provider when the session is made, instead of
 * failing in the first run: convolutions, where a session forbids cuDNN or the machine has none,
 * and nodes that their operator does not accept.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/refusal.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_attrs.h"

#include <stdlib.h>

/* ---- convolutions ---- */

/* A convolution of one element. */
static mp_status try_convolution(mp_device *device) {
    const mp_conv smallest = {.type = MP_F32,
                              .spatial = 2,
                              .search = 2,
                              .batch = 1,
                              .in_channels = 1,
                              .out_channels = 1,
                              .groups = 1,
                              .in = {1, 1},
                              .out = {1, 1},
                              .kernel = {1, 1},
                              .stride = {1, 1},
                              .dilation = {1, 1}};
    mp_math *math = NULL;
    MP_TRY(device->ops->conv_prepare(device, &smallest, &math));
    device->ops->math_release(device, math);
    return MP_OK;
}

static bool lacks_conv(mp_provider *provider, const mp_op *op) {
    if (!op->needs_conv) {
        return false;
    }
    if (!provider->options.enable_cudnn) {
        return true;
    }
    if (provider->convolutions == MP_NOT_TRIED) {
        const mp_status status = try_convolution(provider->unit->device);
        provider->convolutions = status == MP_UNSUPPORTED ? MP_MISSING : MP_THERE;
        if (status == MP_UNSUPPORTED) {
            MP_LOG(WARNING, "convolutions are left to other providers: %s", mp_error_message());
        }
    }
    return provider->convolutions == MP_MISSING;
}

/* ---- nodes ---- */

/* What is not known is -1. A rank above MP_RANK_MAX counts as unknown: such nodes are not taken. */
static mp_status known_shape(const OrtValueInfo *value, mp_shape *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    size_t rank = 0;
    out->rank = -1;
    MP_TRY(mp__value_tensor(value, &tensor));
    if (tensor == NULL || !ORT->TensorTypeAndShape_HasShape(tensor)) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetDimensionsCount(tensor, &rank)));
    if (rank > MP_RANK_MAX) {
        return MP_OK;
    }
    out->rank = (int32_t)rank;
    return mp__from_ort(ORT->GetDimensions(tensor, out->dim, rank));
}

/* Types and shapes. `list` has room for `count` entries; those that are left out are MP_NONE. */
static mp_status read_inputs(const OrtNode *node, mp_tensor *list, size_t count) {
    const OrtValueInfo **values = calloc(count + 1, sizeof *values);
    if (values == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at %zu inputs", count);
    }
    mp_status status = mp__from_ort(ORT->Node_GetInputs(node, values, count));
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        if (values[i] != NULL) {
            status = mp__value_type(values[i], &type);
        }
        list[i].shape.rank = -1;
        if (status == MP_OK && values[i] != NULL) {
            status = known_shape(values[i], &list[i].shape);
        }
        list[i].type = (mp_dtype)type;
    }
    free(values);
    return status;
}

/* Which of the first 32 outputs the model leaves out. */
static mp_status absent_outputs(const OrtNode *node, size_t count, uint32_t *out) {
    const OrtValueInfo **values = calloc(count + 1, sizeof *values);
    if (values == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at %zu outputs", count);
    }
    mp_status status = mp__from_ort(ORT->Node_GetOutputs(node, values, count));
    for (size_t i = 0; status == MP_OK && i < count && i < 32; i++) {
        const char *name = "";
        if (values[i] != NULL) {
            status = mp__from_ort(ORT->GetValueInfoName(values[i], &name));
        }
        *out |= name[0] == '\0' ? 1u << i : 0;
    }
    free(values);
    return status;
}

/* Asks the operator. Fails only where the graph cannot be read. */
static mp_status ask(const OrtNode *node, const mp_node *as_ours, size_t inputs, size_t outputs,
                     bool *refused) {
    mp_tensor *in = calloc(inputs + 1, sizeof *in);
    if (in == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at %zu inputs", inputs);
    }
    const mp_status status = read_inputs(node, in, inputs);
    if (status == MP_OK) {
        const mp_planner planner = {
            .node = as_ours, .in = in, .in_count = (int)inputs, .out_count = (int)outputs};
        *refused = as_ours->op->accept(&planner) != MP_OK;
    }
    if (*refused) {
        MP_LOG(WARNING, "node '%s' is left to other providers: %s: %s", as_ours->name,
               as_ours->op->name, mp_error_message());
    }
    free(in);
    return status;
}

static mp_status is_unacceptable(const mp_op *op, const OrtNode *node, int version, bool *out) {
    mp_node as_ours = {.op = op, .version = version, .name = ""};
    mp_attr_store *attrs = NULL;
    size_t inputs = 0;
    size_t outputs = 0;
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &as_ours.name)));
    MP_TRY(mp__from_ort(ORT->Node_GetNumInputs(node, &inputs)));
    MP_TRY(mp__from_ort(ORT->Node_GetNumOutputs(node, &outputs)));
    if (inputs > INT32_MAX / 2 || outputs > INT32_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "a node with %zu inputs is too large", inputs);
    }
    MP_TRY(absent_outputs(node, outputs, &as_ours.out_absent));
    MP_TRY(mp__attrs_of_node(op, node, &attrs));
    as_ours.attrs = mp__attrs_list(attrs, &as_ours.attr_count);
    const mp_status status = ask(node, &as_ours, inputs, outputs, out);
    mp__attrs_release(attrs);
    return status;
}

mp_status mp__refused(mp_provider *provider, const mp_op *op, const OrtNode *node, int version,
                      bool *out) {
    *out = lacks_conv(provider, op);
    return *out || op->accept == NULL ? MP_OK : is_unacceptable(op, node, version, out);
}
