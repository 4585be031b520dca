/* dtype.c - look-ups in the table of element types. SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

size_t mp_dtype_size(mp_dtype dtype) {
    switch (dtype) {
#define X(name, word, size, onnx, text) \
    case MP_##name:                     \
        return size;
        MP_DTYPE_LIST(X)
#undef X
    case MP_NONE:
    case MP_DTYPE_END:
        break;
    }
    return 0;
}

const char *mp_dtype_word(mp_dtype dtype) {
    switch (dtype) {
#define X(name, word, size, onnx, text) \
    case MP_##name:                     \
        return #word;
        MP_DTYPE_LIST(X)
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
#undef X
    case MP_NONE:
    case MP_DTYPE_END:
        break;
    }
    return "?";
}
