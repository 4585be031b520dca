/* quantize_express.c - see quantize_express.h. What quantize.cu and dequantize.cu give, to the bit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/quantize_express.h"

#include "op/pointwise/narrow.h"

#include <string.h>

enum {
    STORED = MP_BIT(MP_I8) | MP_BIT(MP_U8) | MP_BIT(MP_I16) | MP_BIT(MP_U16),
    FLOAT_TYPES = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
};

static const mp_tensor *given(const mp_expresser *e, int i) {
    return i < e->in_count && e->in[i].type != MP_NONE ? &e->in[i] : NULL;
}

/* A scale for all, of a type that a number or an input of an expression may have. */
static bool has_one_scale(const mp_expresser *e) {
    const mp_tensor *scale = given(e, 1), *zero = given(e, 2);
    return scale != NULL && (MP_BIT(scale->type) & FLOAT_TYPES) != 0 && scale->shape.rank <= 1 &&
           mp_shape_count(&scale->shape) == 1 && mp_node_int(e->node, "block_size", 0) == 0 &&
           (zero == NULL || (zero->shape.rank <= 1 && mp_shape_count(&zero->shape) == 1));
}

/* Of 8, 16 or 32 bits, anywhere in memory. */
static int32_t integer_of(const mp_tensor *t) {
    const void *at = (const void *)t->data;
    const bool is_signed = (MP_BIT(t->type) & MP_SIGNED_INTS) != 0;
    uint8_t byte = 0;
    uint16_t word = 0;
    int32_t whole = 0;
    switch (mp_dtype_size(t->type)) {
    case sizeof byte:
        memcpy(&byte, at, sizeof byte);
        return is_signed ? (int8_t)byte : byte;
    case sizeof word:
        memcpy(&word, at, sizeof word);
        return is_signed ? (int16_t)word : word;
    default:
        memcpy(&whole, at, sizeof whole);
        return whole;
    }
}

static bool known_zero(const mp_expresser *e, int32_t *out) {
    const mp_dtypes types = STORED | MP_BIT(MP_I32);
    const mp_tensor *zero = given(e, 2);
    const bool known = zero == NULL || (zero->data != 0 && (MP_BIT(zero->type) & types) != 0);
    *out = known && zero != NULL ? integer_of(zero) : 0;
    return known;
}

/* Of float, whatever the scale was stored as. */
static int scale_of(mp_expresser *e) {
    return mp_expression_cast(e->to, e->input(e, 1), MP_F32);
}

int mp_express_quantize(mp_expresser *e) {
    const mp_tensor *zero_point = given(e, 2);
    const int64_t asked = mp_node_int(e->node, "output_dtype", 0);
    const mp_dtype to = zero_point != NULL ? zero_point->type
                        : asked != 0       ? mp_dtype_of_onnx(asked)
                                           : MP_U8;
    int32_t zero = 0;
    if ((MP_BIT(to) & STORED) == 0 || (asked != 0 && mp_dtype_of_onnx(asked) != to) ||
        (MP_BIT(e->in[0].type) & FLOAT_TYPES) == 0 || !has_one_scale(e) || !known_zero(e, &zero)) {
        return MP_NO_REGISTER;
    }
    const k_narrow range = mp_narrow(to, (mp_narrowing){.saturate = true});
    const int x = mp_expression_cast(e->to, e->input(e, 0), MP_F32);
    const int whole = mp_expression_function(e->to, "snap", x, scale_of(e),
                                             (float)(range.low - zero), (float)(range.high - zero));
    const int moved =
        zero == 0 ? whole
                  : mp_expression_function(e->to, "affine", whole, MP_NO_REGISTER, 1, (float)zero);
    return mp_expression_cast(e->to, moved, to);
}

int mp_express_dequantize(mp_expresser *e) {
    const mp_tensor *scale = given(e, 1);
    const int64_t asked = mp_node_int(e->node, "output_dtype", 0);
    const mp_dtype from = e->in[0].type;
    int32_t zero = 0;
    if (!has_one_scale(e) || !known_zero(e, &zero) ||
        ((MP_BIT(from) & STORED) == 0 && (from != MP_I32 || zero != 0))) {
        return MP_NO_REGISTER;
    }
    const mp_dtype to = asked != 0 ? mp_dtype_of_onnx(asked) : scale->type;
    if ((MP_BIT(to) & FLOAT_TYPES) == 0) {
        return MP_NO_REGISTER;
    }
    const int x = mp_expression_cast(e->to, e->input(e, 0), MP_F32);
    const int moved =
        zero == 0 ? x : mp_expression_function(e->to, "affine", x, MP_NO_REGISTER, 1, (float)-zero);
    const int value = mp_expression_function(e->to, "mul", moved, scale_of(e), 0, 0);
    return mp_expression_cast(e->to, value, to);
}
