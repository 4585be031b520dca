/* scalar.h - element types as kernels see them: how each is stored and in what it is computed.
 *
 * f16 and bf16 are stored in 16 bits, wrapped so that nobody computes with the bits by accident,
 * and computed in float. Conversions round to nearest even and keep NaN, inf and subnormals.
 * bool is a byte that is 0 or 1 after loading.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SCALAR_H
#define MP_KERNEL_SCALAR_H

#include "kernel/core/types.h"

typedef float k_f32;
typedef double k_f64;
typedef struct k_f16 {
    uint16_t bits;
} k_f16;
typedef struct k_bf16 {
    uint16_t bits;
} k_bf16;
typedef int8_t k_i8;
typedef int16_t k_i16;
typedef int32_t k_i32;
typedef int64_t k_i64;
typedef uint8_t k_u8;
typedef uint16_t k_u16;
typedef uint32_t k_u32;
typedef uint64_t k_u64;
typedef struct k_bool {
    uint8_t byte;
} k_bool;

/* Raw elements, for kernels that move values and do not look at them. */
typedef uint8_t k_b8;
typedef uint16_t k_b16;
typedef uint32_t k_b32;
typedef uint64_t k_b64;
typedef struct K_ALIGN(16) k_b128 {
    uint64_t low, high;
} k_b128;

/* What each is computed in. */
typedef float kc_f32;
typedef double kc_f64;
typedef float kc_f16;
typedef float kc_bf16;
typedef int8_t kc_i8;
typedef int16_t kc_i16;
typedef int32_t kc_i32;
typedef int64_t kc_i64;
typedef uint8_t kc_u8;
typedef uint16_t kc_u16;
typedef uint32_t kc_u32;
typedef uint64_t kc_u64;
typedef uint8_t kc_bool;
typedef uint8_t kc_b8;
typedef uint16_t kc_b16;
typedef uint32_t kc_b32;
typedef uint64_t kc_b64;
typedef k_b128 kc_b128;

K_FN float k_float_of_bits(uint32_t bits) {
#if K_HOST
    union {
        uint32_t bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
#else
    return __uint_as_float(bits);
#endif
}

K_FN uint32_t k_bits_of_float(float value) {
#if K_HOST
    union {
        uint32_t bits;
        float value;
    } both;
    both.value = value;
    return both.bits;
#else
    return __float_as_uint(value);
#endif
}

K_FN float k_load_f16(k_f16 x) {
#if !K_PTX
    const uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16;
    const uint32_t exponent = (x.bits >> 10) & 31u;
    const uint32_t mantissa = x.bits & 0x3ffu;
    if (exponent == 31u) { /* inf, and NaN made quiet */
        const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
        return k_float_of_bits(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0u) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return k_float_of_bits(sign | k_bits_of_float(magnitude));
    }
    return k_float_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
#endif
}

K_FN k_f16 k_store_f16(float value) {
    k_f16 out;
#if !K_PTX
    const uint32_t bits = k_bits_of_float(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t rounded;
    if (magnitude > 0x7f800000u) {
        rounded = 0x7fffu; /* the NaN that cvt.rn.f16.f32 gives, without its sign */
        out.bits = (uint16_t)rounded;
        return out;
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above round to inf */
        rounded = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { /* 2^-14: normal in 16 bits */
        const uint32_t rebased = magnitude - (112u << 23);
        rounded = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
    } else { /* in [0.5, 1) a float's step is 2^-24, that of a subnormal f16 */
        rounded = k_bits_of_float(k_float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    }
    out.bits = (uint16_t)(sign | rounded);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
#endif
    return out;
}

K_FN float k_load_bf16(k_bf16 x) {
    return k_float_of_bits((uint32_t)x.bits << 16);
}

K_FN k_bf16 k_store_bf16(float value) {
    const uint32_t bits = k_bits_of_float(value);
    k_bf16 out;
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        /* Of a NaN that a minimum or maximum made, NVIDIA's compiler takes the low bits for zeros,
         * which are ones; used here they would get into the element beside this one. */
        out.bits = (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);
    } else {
        out.bits = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
    return out;
}

K_FN uint8_t k_load_bool(k_bool x) {
    return x.byte != 0;
}

K_FN k_bool k_store_bool(uint8_t value) {
    k_bool out;
    out.byte = value != 0;
    return out;
}

#define K_PLAIN_SCALAR(word)                    \
    K_FN kc_##word k_load_##word(k_##word x) {  \
        return x;                               \
    }                                           \
    K_FN k_##word k_store_##word(kc_##word x) { \
        return x;                               \
    }
K_PLAIN_SCALAR(f32)
K_PLAIN_SCALAR(f64)
K_PLAIN_SCALAR(i8)
K_PLAIN_SCALAR(i16)
K_PLAIN_SCALAR(i32)
K_PLAIN_SCALAR(i64)
K_PLAIN_SCALAR(u8)
K_PLAIN_SCALAR(u16)
K_PLAIN_SCALAR(u32)
K_PLAIN_SCALAR(u64)
K_PLAIN_SCALAR(b8)
K_PLAIN_SCALAR(b16)
K_PLAIN_SCALAR(b32)
K_PLAIN_SCALAR(b64)
K_PLAIN_SCALAR(b128)
#undef K_PLAIN_SCALAR

/* For #if: is the type a float, is it signed, is it a narrow float. */
#define K_IS_FLOAT_f32   1
#define K_IS_FLOAT_f64   1
#define K_IS_FLOAT_f16   1
#define K_IS_FLOAT_bf16  1
#define K_IS_FLOAT_i8    0
#define K_IS_FLOAT_i16   0
#define K_IS_FLOAT_i32   0
#define K_IS_FLOAT_i64   0
#define K_IS_FLOAT_u8    0
#define K_IS_FLOAT_u16   0
#define K_IS_FLOAT_u32   0
#define K_IS_FLOAT_u64   0
#define K_IS_FLOAT_bool  0
#define K_IS_FLOAT_b8    0
#define K_IS_FLOAT_b16   0
#define K_IS_FLOAT_b32   0
#define K_IS_FLOAT_b64   0
#define K_IS_FLOAT_b128  0
#define K_IS_DOUBLE_f64  1
#define K_IS_DOUBLE_f32  0
#define K_IS_DOUBLE_f16  0
#define K_IS_DOUBLE_bf16 0
#define K_IS_DOUBLE_i8   0
#define K_IS_DOUBLE_i16  0
#define K_IS_DOUBLE_i32  0
#define K_IS_DOUBLE_i64  0
#define K_IS_DOUBLE_u8   0
#define K_IS_DOUBLE_u16  0
#define K_IS_DOUBLE_u32  0
#define K_IS_DOUBLE_u64  0
#define K_IS_DOUBLE_bool 0
#define K_IS_DOUBLE_b8   0
#define K_IS_DOUBLE_b16  0
#define K_IS_DOUBLE_b32  0
#define K_IS_DOUBLE_b64  0
#define K_IS_DOUBLE_b128 0
#define K_IS_SIGNED_f32  1
#define K_IS_SIGNED_f64  1
#define K_IS_SIGNED_f16  1
#define K_IS_SIGNED_bf16 1
#define K_IS_SIGNED_i8   1
#define K_IS_SIGNED_i16  1
#define K_IS_SIGNED_i32  1
#define K_IS_SIGNED_i64  1
#define K_IS_SIGNED_u8   0
#define K_IS_SIGNED_u16  0
#define K_IS_SIGNED_u32  0
#define K_IS_SIGNED_u64  0
#define K_IS_SIGNED_bool 0
#define K_IS_SIGNED_b8   0
#define K_IS_SIGNED_b16  0
#define K_IS_SIGNED_b32  0
#define K_IS_SIGNED_b64  0
#define K_IS_SIGNED_b128 0

#endif
