/* node_label.c - see node_label.h.
 *
 * ONNX Runtime does not say for which initializer it asks for memory, and mostly asks for all of
 * them at once. Where each lies shows when the kernels that read them are made.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/node_label.h"

#include "ep/abi/bridge.h"
#include "pool/pool_handle.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 4096 };

/* Names are only for people: one that cannot be had is left out. */
static void forget(OrtStatus *status) {
    if (status != NULL) {
        ORT->ReleaseStatus(status);
    }
}

typedef OrtStatusPtr get_name_fn(const OrtKernelInfo *info, size_t index, char *out, size_t *size);

/* Of an input or an output; "" where there is none. `name` has room for NAME_MAX_BYTES. */
static const char *name_of(get_name_fn *get, const OrtKernelInfo *info, size_t index, char *name) {
    size_t size = NAME_MAX_BYTES;
    OrtStatus *status = get(info, index, name, &size);
    if (status != NULL) {
        forget(status);
        name[0] = '\0';
    }
    return name;
}

/* Tells the pool which constant lies where. */
static void label_constant(const mp_provider *provider, const OrtKernelInfo *info, size_t i,
                           mp_node_labels *labels) {
    char name[NAME_MAX_BYTES];
    int is_constant = 0;
    const OrtValue *value = NULL;
    const void *data = NULL;
    size_t size = 0;
    forget(ORT->KernelInfoGetConstantInput_tensor(info, i, &is_constant, &value));
    if (!is_constant || value == NULL) {
        return;
    }
    forget(ORT->GetTensorData(value, &data));
    forget(ORT->GetTensorSizeInBytes(value, &size));
    const mp_label label =
        mp_label_make(MP_LABEL_WEIGHTS, NULL, name_of(ORT->KernelInfo_GetInputName, info, i, name));
    if (data != NULL && size > 0 &&
        mp__pool_part_set(provider->pool, (mp_addr)data, size, label) == MP_OK) {
        labels->weights[i] = (mp_addr)data;
    }
}

mp_status mp__node_labels_make(const mp_provider *provider, const OrtKernelInfo *info,
                               const char *node, size_t inputs, size_t outputs,
                               mp_node_labels *out) {
    char name[NAME_MAX_BYTES];
    *out = (mp_node_labels){.work = mp_label_make(MP_LABEL_WORKSPACE, node, NULL),
                            .out = calloc(outputs + 1, sizeof *out->out),
                            .weights = calloc(inputs + 1, sizeof *out->weights),
                            .weight_count = (int)inputs};
    if (out->out == NULL || out->weights == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the labels of a node with %zu inputs",
                       inputs);
    }
    for (size_t i = 0; i < outputs; i++) {
        out->out[i] = mp_label_make(MP_LABEL_ACTIVATIONS, node,
                                    name_of(ORT->KernelInfo_GetOutputName, info, i, name));
    }
    for (size_t i = 0; i < inputs; i++) {
        label_constant(provider, info, i, out);
    }
    return MP_OK;
}

void mp__node_label_drop(const mp_provider *provider, mp_node_labels *labels, int input) {
    if (input < labels->weight_count && labels->weights[input] != 0) {
        mp__pool_part_drop(provider->pool, labels->weights[input]);
        labels->weights[input] = 0;
    }
}

void mp__node_labels_release(const mp_provider *provider, mp_node_labels *labels) {
    for (int i = 0; labels->weights != NULL && i < labels->weight_count; i++) {
        mp__node_label_drop(provider, labels, i);
    }
    free(labels->out);
    free(labels->weights);
}
