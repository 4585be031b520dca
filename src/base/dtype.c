/* dtype.c - look-ups in the table of element types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

size_t mp_dtype_bits(mp_dtype dtype) {
    switch (dtype) {
#define X(name, word, size, onnx, text) \
    case MP_##name:                     \
        return (size)*8;
        MP_DTYPE_LIST(X)
#undef X
#define X(name, word, bits, onnx, text) \
    case MP_##name:                     \
        return bits;
        MP_NARROW_LIST(X)
#undef X
    case MP_NONE:
    case MP_DTYPE_END:
        break;
    }
    return 0;
}

size_t mp_dtype_size(mp_dtype dtype) {
    return mp_dtype_bits(dtype) / 8;
}

mp_dtype mp_dtype_of_onnx(int64_t onnx) {
    enum { ONNX_F8E8M0 = 24, ONNX_U2 = 25, ONNX_I2 = 26 };
    switch (onnx) {
    case ONNX_F8E8M0:
        return MP_F8E8M0;
    case ONNX_U2:
        return MP_U2;
    case ONNX_I2:
        return MP_I2;
    default:
        return onnx > 0 && onnx < MP_DTYPE_END && mp_dtype_bits((mp_dtype)onnx) > 0 ? (mp_dtype)onnx
                                                                                    : MP_NONE;
    }
}

mp_dtype mp_dtype_unsigned(mp_dtype dtype) {
    static const mp_dtype of_size[] = {[1] = MP_U8, [2] = MP_U16, [4] = MP_U32, [8] = MP_U64};
    return (MP_BIT(dtype) & MP_INTS) != 0 ? of_size[mp_dtype_size(dtype)] : dtype;
}

const char *mp_dtype_word(mp_dtype dtype) {
    switch (dtype) {
#define X(name, word, size, onnx, text) \
    case MP_##name:                     \
        return #word;
        MP_DTYPE_LIST(X)
        MP_NARROW_LIST(X)
#undef X
    case MP_NONE:
    case MP_DTYPE_END:
        break;
    }
    return "?";
}

const char *mp_dtype_name(mp_dtype dtype) {
    switch (dtype) {
#define X(name, word, size, onnx, text) \
    case MP_##name:                     \
        return text;
        MP_DTYPE_LIST(X)
        MP_NARROW_LIST(X)
#undef X
    case MP_NONE:
    case MP_DTYPE_END:
        break;
    }
    return "?";
}
