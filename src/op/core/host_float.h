/* host_float.h - numbers of tensors of floating-point types whose bytes are in host memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_HOST_FLOAT_H
#define MP_OP_HOST_FLOAT_H

#include "base/half.h"
#include "op/core/op.h"

#include <string.h>

/* A node's input need not lie at a multiple of its elements' size. */
static inline double mp_host_float(const mp_tensor *tensor, int64_t i) {
    const char *at = (const char *)tensor->data + i * (int64_t)mp_dtype_size(tensor->type);
    double wide = 0;
    float single = 0;
    uint16_t half = 0;
    switch (tensor->type) {
    case MP_F64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case MP_F16:
        memcpy(&half, at, sizeof half);
        return (double)mp_from_f16(half);
    case MP_BF16:
        memcpy(&half, at, sizeof half);
        return (double)mp_from_bf16(half);
    default:
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
}

/* Of a tensor of floats or doubles. */
static inline void mp_host_float_put(const mp_tensor *tensor, int64_t i, double number) {
    if (tensor->type == MP_F64) {
        ((double *)tensor->data)[i] = number;
    } else {
        ((float *)tensor->data)[i] = (float)number;
    }
}

#endif
