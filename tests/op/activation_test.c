/* activation_test.c - element-wise operators in types that ONNX Runtime's CPU provider lacks or
 * rounds otherwise, against the C library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const double inputs[] = {-9,   -2.5, -1.5, -0.75, -0.5, -0.25, 0,
                                0.25, 0.5,  0.75, 1.5,   2.5,  9};
enum { COUNT = MP_COUNT_OF(inputs) };

static double gelu_by_tanh(double x) {
    const double pi = acos(-1);
    return x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * pow(x, 3))));
}

static double gelu_by_erf(double x) {
    return x / 2 * (1 + erf(x / sqrt(2)));
}

static double shrink(double x) {
    return x < -1.5 ? x + 0.5 : x > 1.5 ? x - 0.5 : 0;
}

static double quick_gelu(double x) {
    return x / (1 + exp(-(double)1.702f * x));
}

static double mish(double x) {
    return x * tanh(log1p(exp(x)));
}

static const mp_attr by_tanh[] = {OP_TEXT("approximate", "tanh")};
static const mp_attr border[] = {OP_FLOAT("lambd", 1.5f), OP_FLOAT("bias", 0.5f)};

static const struct {
    const char *domain, *name;
    int version;
    double (*want)(double x);
    const mp_attr *attrs;
    size_t attr_count;
} functions[] = {
    {"", "Gelu", 20, gelu_by_tanh, by_tanh, 1},
    {"", "Gelu", 20, gelu_by_erf, NULL, 0},
    {"com.microsoft", "FastGelu", 1, gelu_by_tanh, NULL, 0},
    {"com.microsoft", "QuickGelu", 1, quick_gelu, NULL, 0},
    {"", "Shrink", 9, shrink, border, 2},
    {"", "Mish", 22, mish, NULL, 0},
    {"", "Sinh", 22, sinh, NULL, 0},
    {"", "Cosh", 22, cosh, NULL, 0},
    {"", "Atan", 22, atan, NULL, 0},
    {"", "Asinh", 22, asinh, NULL, 0},
};

DEVICE_TEST(activations_in_every_float) {
    static const mp_dtype types[] = {MP_F64, MP_F32, MP_F16, MP_BF16};
    for (size_t n = 0; n < MP_COUNT_OF(functions) * MP_COUNT_OF(types); n++) {
        const size_t f = n / MP_COUNT_OF(types);
        const mp_dtype type = types[n % MP_COUNT_OF(types)];
        if (functions[f].domain[0] == '\0' &&
            (op_types_of(functions[f].name, functions[f].version) & MP_BIT(type)) == 0) {
            continue;
        }
        void *x = op_memory(type, COUNT);
        for (int64_t i = 0; i < (int64_t)COUNT; i++) {
            op_store_real(type, x, i, inputs[i]);
        }
        op_case c = {.domain = functions[f].domain,
                     .name = functions[f].name,
                     .version = functions[f].version,
                     .attrs = functions[f].attrs,
                     .attr_count = functions[f].attr_count,
                     .in = {OP_TENSOR(type, x, COUNT)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        /* A few roundings in the precision of the computation, which is float or double. */
        const double inner = 32 * op_precision(type == MP_F64 ? MP_F64 : MP_F32);
        for (int64_t i = 0; i < (int64_t)COUNT; i++) {
            op_check_close(op_real(type, c.out[0].data, i), functions[f].want(inputs[i]),
                           op_precision(type) + inner, functions[f].name, i);
        }
        op_close(device, &c);
        free(x);
    }
}

DEVICE_TEST(bit_shift_of_16_bits_and_beyond) {
    const uint16_t x[] = {1, 0x8001, 0xffff, 0xffff, 3};
    const uint16_t by[] = {15, 1, 8, 16, 0xffff};
    static const uint16_t left[] = {0x8000, 2, 0xff00, 0, 0};
    static const uint16_t right[] = {0, 0x4000, 0xff, 0, 0};
    for (int k = 0; k < 2; k++) {
        const mp_attr attrs[] = {OP_TEXT("direction", k == 0 ? "LEFT" : "RIGHT")};
        op_case c = {.name = "BitShift",
                     .version = 11,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {OP_TENSOR(MP_U16, x, 5), OP_TENSOR(MP_U16, by, 5)},
                     .in_count = 2,
                     .out_count = 1};
        op_run(device, &c);
        CHECK(op_same(&c.out[0], k == 0 ? left : right));
        op_close(device, &c);
    }
}

DEVICE_TEST(bit_cast_keeps_the_bits) {
    const float x[] = {1.0f, -0.0f, 3.5f};
    static const uint32_t want[] = {0x3f800000, 0x80000000, 0x40600000};
    const mp_attr to_u32[] = {OP_INT("to", 12)};
    const mp_attr to_i64[] = {OP_INT("to", 7)};
    mp_plan *plan = NULL;
    op_case c = {.name = "BitCast",
                 .version = 26,
                 .attrs = to_u32,
                 .attr_count = 1,
                 .in = {op_f32(x, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == MP_U32 && op_same(&c.out[0], want));
    op_close(device, &c);
    c.attrs = to_i64;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "not a type as wide as float");
}

DEVICE_TEST(gelu_refuses_what_makes_no_sense) {
    const float x[] = {1, 2, 3, 4, 5, 6};
    const mp_attr unknown[] = {OP_TEXT("approximate", "sigmoid")};
    mp_plan *plan = NULL;
    op_case c = {.name = "Gelu",
                 .version = 20,
                 .attrs = unknown,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 3), op_f32(x, 2)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "approximate 'sigmoid'");
    c.domain = "com.microsoft";
    c.name = "BiasGelu";
    c.version = 1;
    c.attr_count = 0;
    c.in_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "is not a row of X of shape 2x3");
}
