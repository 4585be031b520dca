/* half.h - exact conversions between float and the two 16-bit floats.
 *
 * Narrowing rounds to nearest, ties to even; overflow gives infinity, a NaN stays a NaN with the
 * sign and the top of its payload. Nothing here depends on how the processor treats subnormals.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_HALF_H
#define MP_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mp_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mp_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float mp_from_bf16(uint16_t value) {
    return mp_float_of((uint32_t)value << 16);
}

static inline uint16_t mp_to_bf16(float value) {
    const uint32_t bits = mp_float_bits(value);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    const uint32_t nan =
        bits | 0x400000; /* the payload's top bit: cutting must not leave infinity */
    return (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded) >> 16);
}

static inline float mp_from_f16(uint16_t value) {
    const uint32_t sign = (uint32_t)(value & 0x8000) << 16, rest = value & 0x7fff;
    const uint32_t normal = (rest << 13) + (rest >= 0x7c00 ? 0x70000000 : 0x38000000);
    const uint32_t small = mp_float_bits((float)(int32_t)rest * 0x1p-24f); /* exact */
    return mp_float_of(sign | (rest < 0x400 ? small : normal));
}

static inline uint16_t mp_to_f16(float value) {
    const uint32_t bits = mp_float_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    /* Below 2^-14 a step is 2^-24, which is also the step of floats in [0.5, 1). */
    const uint32_t small =
        rest < 0x38800000 ? mp_float_bits(mp_float_of(rest) + 0.5F) - 0x3f000000 : 0;
    const uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    const uint32_t nan = 0x7e00 | (rest >> 13 & 0x3ff);
    const uint32_t magnitude = rest > 0x7f800000    ? nan
                               : rest >= 0x477ff000 ? 0x7c00
                               : rest < 0x38800000  ? small
                                                    : normal;
    return (uint16_t)(sign | magnitude);
}

#endif
