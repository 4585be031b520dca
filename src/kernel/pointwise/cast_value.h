/* cast_value.h - one element of type T as one of type U.
 *
 * Floats to integers truncate; what does not fit gives what x86 and ONNX Runtime's CPU provider
 * give, on every device: the lowest int64 or int32, of which narrower types take the low bits.
 *
 * No guard: fused kernels include it once for each pair of types, each in a namespace of its own.
 * SPDX-License-Identifier: Apache-2.0 */

#ifndef C_WIDE_i64
/* Whether the target is a 64-bit integer (or uint32, which is taken from 64 bits). */
#define C_WIDE_i64  1
#define C_WIDE_u64  1
#define C_WIDE_u32  1
#define C_WIDE_i32  0
#define C_WIDE_i16  0
#define C_WIDE_u16  0
#define C_WIDE_i8   0
#define C_WIDE_u8   0
#define C_WIDE_bool 0
#define C_WIDE_f32  0
#define C_WIDE_f64  0
#define C_WIDE_f16  0
#define C_WIDE_bf16 0

#define C_BOOL_bool 1
#define C_BOOL_i64  0
#define C_BOOL_u64  0
#define C_BOOL_u32  0
#define C_BOOL_i32  0
#define C_BOOL_i16  0
#define C_BOOL_u16  0
#define C_BOOL_i8   0
#define C_BOOL_u8   0
#define C_BOOL_f32  0
#define C_BOOL_f64  0
#define C_BOOL_f16  0
#define C_BOOL_bf16 0
#endif

#if T_FLOAT && !U_FLOAT
K_FN int64_t c_to_i64(TC x) {
    const TC limit = (TC)9223372036854775808.0;
    return x >= -limit && x < limit ? (int64_t)x : (int64_t)((uint64_t)1 << 63);
}

K_FN int32_t c_to_i32(TC x) {
    return x > (TC)-2147483649.0 && x < (TC)2147483648.0 && x >= (TC)-2147483648.0
               ? (int32_t)x
               : (int32_t)((uint32_t)1 << 31);
}

K_FN uint64_t c_to_u64(TC x) { /* numbers from 2^63 on have the bits of int64 no longer */
    const TC limit = (TC)9223372036854775808.0;
    return x >= limit && x < limit * 2 ? (uint64_t)(x - limit) + ((uint64_t)1 << 63)
                                       : (uint64_t)c_to_i64(x);
}
#endif

K_FN U c_cast(T element) {
    const TC x = T_load(element);
#if K_JOIN(C_BOOL_, K_T1)
    return U_store(x != (TC)0);
#elif T_FLOAT && !U_FLOAT && !U_SIGNED && K_JOIN(C_WIDE_, K_T1)
    return U_store((UC)c_to_u64(x));
#elif T_FLOAT && !U_FLOAT && K_JOIN(C_WIDE_, K_T1)
    return U_store((UC)c_to_i64(x));
#elif T_FLOAT && !U_FLOAT
    return U_store((UC)c_to_i32(x));
#else
    return U_store((UC)x);
#endif
}
