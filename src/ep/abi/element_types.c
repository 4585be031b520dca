/* element_types.c - the table of element_types.h looked up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/element_types.h"

#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <string.h>

typedef struct element {
    unsigned number;
    const char *text;
} element;

static const element elements[] = {
#define X(name, word, size, onnx, text) {(onnx), "tensor(" text ")"},
    MP_DTYPE_LIST(X) MP_NARROW_LIST(X)
#undef X
};

mp_status mp__value_tensor(const OrtValueInfo *value, const OrtTensorTypeAndShapeInfo **out,
                           ONNXTensorElementDataType *type, size_t *rank) {
    const OrtTypeInfo *info = NULL;
    *out = NULL;
    *type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    *rank = 0;
    MP_TRY(mp__from_ort(ORT->GetValueInfoTypeInfo(value, &info)));
    if (info != NULL) {
        MP_TRY(mp__from_ort(ORT->CastTypeInfoToTensorInfo(info, out)));
    }
    if (*out == NULL) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetTensorElementType(*out, type)));
    return mp__from_ort(ORT->GetDimensionsCount(*out, rank));
}

mp_status mp__value_describe(const OrtValueInfo *value, mp_tensor *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    *out = (mp_tensor){.shape = {.rank = -1}};
    MP_TRY(mp__value_tensor(value, &tensor, &type, &rank));
    out->type = (mp_dtype)type;
    if (tensor == NULL || !ORT->TensorTypeAndShape_HasShape(tensor) || rank > MP_RANK_MAX) {
        return MP_OK;
    }
    out->shape.rank = (int32_t)rank;
    return mp__from_ort(ORT->GetDimensions(tensor, out->shape.dim, rank));
}

mp_status mp__value_type(const OrtValueInfo *value, ONNXTensorElementDataType *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    size_t rank = 0;
    return mp__value_tensor(value, &tensor, out, &rank);
}

size_t mp__element_size(ONNXTensorElementDataType type) {
    return mp_dtype_size((mp_dtype)type);
}

bool mp__element_known(ONNXTensorElementDataType type) {
    return mp_dtype_bits((mp_dtype)type) > 0;
}

mp_dtypes mp__types_of_text(const char *text) {
    for (size_t i = 0; i < MP_COUNT_OF(elements); i++) {
        if (strcmp(elements[i].text, text) == 0) {
            return 1u << elements[i].number;
        }
    }
    return 0;
}
