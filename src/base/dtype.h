/* dtype.h - element types of tensors, one table.
 *
 * Columns: name in C, word in kernel names, bytes, ONNX's TensorProto.DataType value (ONNX Runtime
 * uses the same numbers), ONNX's name in type constraints. SPDX-License-Identifier: Apache-2.0 */
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

typedef enum mp_dtype {
    MP_NONE = 0,
#define X(name, word, size, onnx, text) MP_##name = (onnx),
    MP_DTYPE_LIST(X)
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
};

/* Bytes of one element; 0 for a value that is not in the table. */
size_t mp_dtype_size(mp_dtype dtype);

/* "f32", "i64", ...: the word used in kernel names; "?" for a value that is not in the table. */
const char *mp_dtype_word(mp_dtype dtype);

/* "float", "int64", ...: ONNX's name; "?" for a value that is not in the table. */
const char *mp_dtype_name(mp_dtype dtype);

#endif
