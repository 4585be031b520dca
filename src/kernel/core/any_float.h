/* any_float.h - reads a float whose type is known at run time, for the smaller of two tensors whose
 * types need not agree.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ANY_FLOAT_H
#define MP_KERNEL_ANY_FLOAT_H

#include "kernel/core/prelude.h"

/* `type` is the number that ONNX gives the element type: of float, float16 or bfloat16. */
K_FN float k_any_float(const void *x, int64_t i, int32_t type) {
    if (type == 1) {
        return ((const float *)x)[i];
    }
    return type == 10 ? k_load_f16(((const k_f16 *)x)[i]) : k_load_bf16(((const k_bf16 *)x)[i]);
}

#endif
