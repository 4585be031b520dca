/* dtype.h - element types of tensors, two tables.
 *
 * MP_DTYPE_LIST has the types that operators compute with. Columns: name in C, word in kernel
 * names, bytes, ONNX Runtime's number (ONNX's TensorProto.DataType up to 23), ONNX's name in type
 * constraints. MP_NARROW_LIST has those that are only stored: moved, cast, quantised. It has bits
 * in place of bytes: elements of less than a byte lie packed, the first in the low bits, so that
 * sizes of tensors come from mp_shape_bytes and never from a product with mp_dtype_size.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_DTYPE_H
#define MP_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#define MP_DTYPE_LIST(X)          \
    X(F32, f32, 4, 1, "float")    \
    X(U8, u8, 1, 2, "uint8")      \
    X(I8, i8, 1, 3, "int8")       \
    X(U16, u16, 2, 4, "uint16")   \
    X(I16, i16, 2, 5, "int16")    \
    X(I32, i32, 4, 6, "int32")    \
    X(I64, i64, 8, 7, "int64")    \
    X(BOOL, bool, 1, 9, "bool")   \
    X(F16, f16, 2, 10, "float16") \
    X(F64, f64, 8, 11, "double")  \
    X(U32, u32, 4, 12, "uint32")  \
    X(U64, u64, 8, 13, "uint64")  \
    X(BF16, bf16, 2, 16, "bfloat16")

#define MP_NARROW_LIST(X)                              \
    X(F8E4M3FN, f8e4m3fn, 8, 17, "float8e4m3fn")       \
    X(F8E4M3FNUZ, f8e4m3fnuz, 8, 18, "float8e4m3fnuz") \
    X(F8E5M2, f8e5m2, 8, 19, "float8e5m2")             \
    X(F8E5M2FNUZ, f8e5m2fnuz, 8, 20, "float8e5m2fnuz") \
    X(U4, u4, 4, 21, "uint4")                          \
    X(I4, i4, 4, 22, "int4")                           \
    X(F4E2M1, f4e2m1, 4, 23, "float4e2m1")             \
    X(U2, u2, 2, 24, "uint2")                          \
    X(I2, i2, 2, 25, "int2")                           \
    X(F8E8M0, f8e8m0, 8, 26, "float8e8m0")

typedef enum mp_dtype {
    MP_NONE = 0,
#define X(name, word, size, onnx, text) MP_##name = (onnx),
    MP_DTYPE_LIST(X) MP_NARROW_LIST(X)
#undef X
        MP_DTYPE_END = 32 /* above every value, so that a set of types is a uint32_t */
} mp_dtype;

typedef uint32_t mp_dtypes; /* a set: MP_BIT(MP_F32) | ... */

#define MP_BIT(dtype) (1u << (unsigned)(dtype))

enum {
    MP_FLOATS = 1u << 1 | 1u << 10 | 1u << 11 | 1u << 16,
    MP_SIGNED_INTS = 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7,
    MP_UNSIGNED_INTS = 1u << 2 | 1u << 4 | 1u << 12 | 1u << 13,
    MP_INTS = MP_SIGNED_INTS | MP_UNSIGNED_INTS,
    MP_NUMBERS = MP_FLOATS | MP_INTS,
    MP_ALL_TYPES = MP_NUMBERS | 1u << 9,
    /* Without bfloat16, which ONNX's older schemas do not know. */
    MP_IEEE_FLOATS = MP_FLOATS & ~(1u << 16),
    MP_OLD_TYPES = MP_ALL_TYPES & ~(1u << 16),
    /* Types that are only stored; none of the sets above has any of them. */
    MP_FLOAT8 = 1u << 17 | 1u << 18 | 1u << 19 | 1u << 20,
    MP_PACKED = 1u << 21 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25,
    MP_NARROW = MP_FLOAT8 | MP_PACKED | 1u << 26,
};

/* Bytes of one element; 0 for a type of less than a byte and for a value that is in no table. */
size_t mp_dtype_size(mp_dtype dtype);

/* Bits of one element: 2, 4 or a multiple of 8; 0 for a value that is in no table. */
size_t mp_dtype_bits(mp_dtype dtype);

/* The type of ONNX's TensorProto.DataType `onnx`, or MP_NONE: ONNX Runtime numbers some of the
 * newest types in another order. */
mp_dtype mp_dtype_of_onnx(int64_t onnx);

/* The unsigned integer of the same width for an integer, otherwise the type itself. */
mp_dtype mp_dtype_unsigned(mp_dtype dtype);

/* "f32", "i64", ...: the word used in kernel names; "?" for a value that is in no table. */
const char *mp_dtype_word(mp_dtype dtype);

/* "float", "int64", ...: ONNX's name; "?" for a value that is in no table. */
const char *mp_dtype_name(mp_dtype dtype);

#endif
