/* typed_store.h - writes a number as an element of a type that is known at run time, for kernels
 * that are too rare to be built for each type.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_TYPED_STORE_H
#define MP_KERNEL_TYPED_STORE_H

#include "kernel/core/prelude.h"

/* `type` is the number that ONNX gives the element type. Integers drop the fraction; the value must
 * lie in their range. */
K_FN void k_typed_store(void *out, int64_t i, int32_t type, double value) {
    switch (type) {
    case 1:
        ((float *)out)[i] = (float)value;
        break;
    case 2:
        ((uint8_t *)out)[i] = (uint8_t)value;
        break;
    case 3:
        ((int8_t *)out)[i] = (int8_t)value;
        break;
    case 4:
        ((uint16_t *)out)[i] = (uint16_t)value;
        break;
    case 5:
        ((int16_t *)out)[i] = (int16_t)value;
        break;
    case 6:
        ((int32_t *)out)[i] = (int32_t)value;
        break;
    case 7:
        ((int64_t *)out)[i] = (int64_t)value;
        break;
    case 10:
        ((k_f16 *)out)[i] = k_store_f16((float)value);
        break;
    case 11:
        ((double *)out)[i] = value;
        break;
    case 12:
        ((uint32_t *)out)[i] = (uint32_t)value;
        break;
    case 13:
        ((uint64_t *)out)[i] = (uint64_t)value;
        break;
    default:
        ((k_bf16 *)out)[i] = k_store_bf16((float)value);
        break;
    }
}

#endif
