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

mp_status mp__value_tensor(const OrtValueInfo *value, const OrtTensorTypeAndShapeInfo **out) {
    const OrtTypeInfo *info = NULL;
    *out = NULL;
    MP_TRY(mp__from_ort(ORT->GetValueInfoTypeInfo(value, &info)));
    return info == NULL ? MP_OK : mp__from_ort(ORT->CastTypeInfoToTensorInfo(info, out));
}

mp_status mp__value_type(const OrtValueInfo *value, ONNXTensorElementDataType *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    *out = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    MP_TRY(mp__value_tensor(value, &tensor));
    return tensor != NULL ? mp__from_ort(ORT->GetTensorElementType(tensor, out)) : MP_OK;
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
