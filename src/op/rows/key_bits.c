/* key_bits.c - element types as ordered bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/key_bits.h"

static uint64_t inf_bits(mp_dtype dtype) {
    switch (dtype) {
    case MP_F32:
        return 0x7f800000u;
    case MP_F64:
        return UINT64_C(0x7ff0000000000000);
    case MP_F16:
        return 0x7c00u;
    case MP_BF16:
        return 0x7f80u;
    default:
        return 0;
    }
}

int mp_order_bits(mp_dtype dtype) {
    return (int)mp_dtype_size(dtype) * 8;
}

k_order mp_order_of(mp_dtype dtype, bool descending) {
    const int bits = mp_order_bits(dtype);
    const uint64_t all = ~(uint64_t)0 >> (64 - bits);
    const bool has_sign = (MP_BIT(dtype) & (MP_FLOATS | MP_SIGNED_INTS)) != 0;
    return (k_order){.sign = has_sign ? (uint64_t)1 << (bits - 1) : 0,
                     .inf = inf_bits(dtype),
                     .all = all,
                     .flip = descending ? all : 0};
}

uint64_t mp_one_bits(mp_dtype dtype) {
    switch (dtype) {
    case MP_F32:
        return 0x3f800000u;
    case MP_F64:
        return UINT64_C(0x3ff0000000000000);
    case MP_F16:
        return 0x3c00u;
    case MP_BF16:
        return 0x3f80u;
    default:
        return 1;
    }
}
