/* op_value.c - elements as plain numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include "base/half.h"

#include <math.h>
#include <stdlib.h>

const mp_dtype op_types[] = {
#define X(name, word, size, onnx, text) MP_##name,
    MP_DTYPE_LIST(X)
#undef X
        MP_NONE};

mp_dtypes op_types_of(const char *name, int version) {
    const mp_op *op = mp_op_find("", name, version);
    if (op == NULL) {
        test_fail(__FILE__, __LINE__, "no row for %s version %d", name, version);
    }
    return op->types[0].types;
}

bool op_is_float(mp_dtype type) {
    return (MP_BIT(type) & MP_FLOATS) != 0;
}

bool op_is_signed(mp_dtype type) {
    return (MP_BIT(type) & MP_SIGNED_INTS) != 0;
}

double op_real(mp_dtype type, const void *data, int64_t i) {
    switch (type) {
    case MP_F32:
        return (double)((const float *)data)[i];
    case MP_F64:
        return ((const double *)data)[i];
    case MP_F16:
        return (double)mp_from_f16(((const uint16_t *)data)[i]);
    case MP_BF16:
        return (double)mp_from_bf16(((const uint16_t *)data)[i]);
    case MP_U64:
        return (double)((const uint64_t *)data)[i];
    default:
        return (double)op_whole(type, data, i);
    }
}

int64_t op_whole(mp_dtype type, const void *data, int64_t i) {
    switch (type) {
    case MP_I8:
        return ((const int8_t *)data)[i];
    case MP_I16:
        return ((const int16_t *)data)[i];
    case MP_I32:
        return ((const int32_t *)data)[i];
    case MP_I64:
    case MP_U64:
        return ((const int64_t *)data)[i];
    case MP_U16:
        return ((const uint16_t *)data)[i];
    case MP_U32:
        return ((const uint32_t *)data)[i];
    case MP_U8:
    case MP_BOOL:
        return ((const uint8_t *)data)[i];
    default:
        test_fail(__FILE__, __LINE__, "%s is no integer type", mp_dtype_name(type));
    }
}

/* Double to a 16-bit float with one rounding: to odd first, where float has bits to spare. */
static float to_odd(double value) {
    const float near = (float)value;
    uint32_t bits = mp_float_bits(near);
    if ((double)near == value || near != near || (bits & 0x7fffffffu) >= 0x7f800000u) {
        return near;
    }
    bits -= fabs((double)near) > fabs(value) ? 1 : 0;
    return mp_float_of(bits | 1);
}

void op_store_real(mp_dtype type, void *data, int64_t i, double value) {
    switch (type) {
    case MP_F32:
        ((float *)data)[i] = (float)value;
        return;
    case MP_F64:
        ((double *)data)[i] = value;
        return;
    case MP_F16:
        ((uint16_t *)data)[i] = mp_to_f16(to_odd(value));
        return;
    case MP_BF16:
        ((uint16_t *)data)[i] = mp_to_bf16(to_odd(value));
        return;
    default:
        op_store_whole(type, data, i, (int64_t)value);
    }
}

void op_store_whole(mp_dtype type, void *data, int64_t i, int64_t value) {
    const uint64_t bits = (uint64_t)value;
    const uint8_t truth = value != 0;
    switch (mp_dtype_size(type)) {
    case 1:
        ((uint8_t *)data)[i] = type == MP_BOOL ? truth : (uint8_t)bits;
        return;
    case 2:
        ((uint16_t *)data)[i] = (uint16_t)bits;
        return;
    case 4:
        ((uint32_t *)data)[i] = (uint32_t)bits;
        return;
    default:
        ((uint64_t *)data)[i] = bits;
    }
}

double op_rounded(mp_dtype type, double value) {
    double slot = 0;
    op_store_real(type, &slot, 0, value);
    return op_real(type, &slot, 0);
}

int64_t op_wrapped(mp_dtype type, int64_t value) {
    int64_t slot = 0;
    op_store_whole(type, &slot, 0, value);
    return op_whole(type, &slot, 0);
}

void *op_memory(mp_dtype type, int64_t count) {
    void *data = calloc((size_t)count + 1, mp_dtype_size(type));
    CHECK(data != NULL);
    return data;
}

bool op_same(const op_tensor *tensor, const void *bytes) {
    size_t size = 0;
    CHECK_OK(mp_shape_bytes(&tensor->shape, tensor->type, &size));
    return memcmp(tensor->data, bytes, size) == 0;
}

void *op_numbers(mp_dtype type, uint64_t seed, int64_t count) {
    void *data = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)op_value(seed, i);
        if (op_is_float(type)) {
            op_store_real(type, data, i, value);
        } else {
            op_store_whole(type, data, i, (int64_t)(value * 4) + (op_is_signed(type) ? 0 : 8));
        }
    }
    return data;
}

double op_precision(mp_dtype type) {
    switch (type) {
    case MP_F64:
        return 0x1p-52;
    case MP_F16:
        return 0x1p-10;
    case MP_BF16:
        return 0x1p-7;
    default:
        return 0x1p-23;
    }
}

int64_t op_place(const mp_shape *out, const mp_shape *in, int64_t i) {
    int64_t offset = 0;
    int64_t step = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        const int own = d - (out->rank - in->rank);
        if (own >= 0) {
            offset += in->dim[own] == 1 ? 0 : i % out->dim[d] * step;
            step *= in->dim[own];
        }
        i /= out->dim[d];
    }
    return offset;
}

void op_moments(mp_dtype type, const void *data, int64_t first, int64_t count, double *mean,
                double *variance) {
    *mean = 0;
    *variance = 0;
    for (int64_t i = first; i < first + count; i++) {
        *mean += op_real(type, data, i) / (double)count;
    }
    for (int64_t i = first; i < first + count; i++) {
        *variance += pow(op_real(type, data, i) - *mean, 2) / (double)count;
    }
}
