/* element_types.h - element types that values may have, by ONNX Runtime's numbers and names.
 *
 * Control flow and copies only pass values on, and take the types of MP_NARROW_LIST too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ELEMENT_TYPES_H
#define MP_EP_ELEMENT_TYPES_H

#include "ep/abi/ort.h"
#include "op/core/op.h"

#include <stdbool.h>

enum {
    MP_CARRIED_TYPES = MP_ALL_TYPES | MP_NARROW,
};

/* What a graph says of a value: borrowed from it, NULL for anything but a tensor; its type, or
 * UNDEFINED, and its rank, or 0. */
mp_status mp__value_tensor(const OrtValueInfo *value, const OrtTensorTypeAndShapeInfo **out,
                           ONNXTensorElementDataType *type, size_t *rank);
/* The same as a tensor of ours: what is not known is -1, a rank above MP_RANK_MAX, too; type
 * MP_NONE for anything but a tensor. No data. */
mp_status mp__value_describe(const OrtValueInfo *value, mp_tensor *out);
/* Its type alone. */
mp_status mp__value_type(const OrtValueInfo *value, ONNXTensorElementDataType *out);

/* Bytes of one element; 0 for strings and for what is smaller than a byte. */
size_t mp__element_size(ONNXTensorElementDataType type);

/* Whether a device can hold elements of the type: not strings. */
bool mp__element_known(ONNXTensorElementDataType type);

/* The set that holds the type of the name "tensor(...)"; empty for others. */
mp_dtypes mp__types_of_text(const char *text);

#endif
