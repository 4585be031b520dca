/* element_types.h - element types that values may have though no operator computes with them.
 *
 * MP_DTYPE_LIST names the types of operators. Control flow and copies only pass values on, and take
 * ONNX's types of eight bits too. Both are numbered as ONNX does it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ELEMENT_TYPES_H
#define MP_EP_ELEMENT_TYPES_H

#include "base/dtype.h"
#include "base/status.h"
#include "ep/ort.h"

enum {
    MP_PASSED_TYPES = 1u << 17 | 1u << 18 | 1u << 19 | 1u << 20,
    MP_CARRIED_TYPES = MP_ALL_TYPES | MP_PASSED_TYPES,
};

/* What a graph says of a value; borrowed from it, NULL for what is no tensor. */
mp_status mp__value_tensor(const OrtValueInfo *value, const OrtTensorTypeAndShapeInfo **out);
/* Its type; UNDEFINED where it is no tensor. */
mp_status mp__value_type(const OrtValueInfo *value, ONNXTensorElementDataType *out);

/* Bytes of one element; 0 for strings and for what is smaller than a byte. */
size_t mp__element_size(ONNXTensorElementDataType type);

/* The set that holds the type of the name "tensor(...)"; empty for others. */
mp_dtypes mp__types_of_text(const char *text);

#endif
