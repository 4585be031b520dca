/* dropout_test.c - Dropout and its forms with a bias, a residual and a mask of bits: how often
 * elements are dropped, that the mask tells which, and what becomes of the others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static void check_dropout(mp_device *device, mp_dtype type, mp_dtype ratio_type, double ratio) {
    enum { COUNT = 20003 };
    void *x = op_memory(type, COUNT), *given = op_memory(ratio_type, 1);
    const uint8_t yes = 1;
    for (int64_t i = 0; i < COUNT; i++) {
        op_store_real(type, x, i, 1);
    }
    op_store_real(ratio_type, given, 0, ratio);
    op_case c = {.name = "Dropout",
                 .version = 13,
                 .in = {OP_TENSOR(type, x, COUNT), op_tensor_of(ratio_type, given, 0, NULL),
                        op_tensor_of(MP_BOOL, &yes, 0, NULL)},
                 .in_count = 3,
                 .out_count = 2};
    op_run(device, &c);
    const uint8_t *mask = c.out[1].data;
    int64_t kept = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        const double want = mask[i] != 0 ? op_rounded(type, 1 / (1 - ratio)) : 0;
        op_check_close(op_real(type, c.out[0].data, i), want, op_precision(type), "dropout", i);
        kept += mask[i];
    }
    op_check_close((double)kept / COUNT, 1 - ratio, 6 * sqrt(ratio * (1 - ratio) / COUNT), "kept",
                   0);
    op_close(device, &c);
    free(x);
    free(given);
}

DEVICE_TEST(dropout_drops_as_often_as_asked) {
    const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (int t = 0; t < 4; t++) {
        check_dropout(device, types[t], MP_F32, 0.25);
        check_dropout(device, MP_F32, types[t], 0.75);
    }
}

DEVICE_TEST(dropout_refuses_a_ratio_of_one) {
    const float x[3] = {0}, one = 1;
    const uint8_t yes = 1;
    mp_plan *plan = NULL;
    const op_case c = {.name = "Dropout",
                       .version = 13,
                       .in = {op_f32(x, 3), op_tensor_of(MP_F32, &one, 0, NULL),
                              op_tensor_of(MP_BOOL, &yes, 0, NULL)},
                       .in_count = 3,
                       .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "ratio is 1; it must be in [0, 1)");
}

/* ---- with a bias, a residual, bits ---- */

typedef struct form {
    const char *name;
    bool bits, biased, whole_bias, residual;
} form;

static bool stays(const op_case *c, bool bits, int64_t i) {
    return bits ? (((const uint32_t *)c->out[1].data)[i / 32] >> (i % 32) & 1) != 0
                : ((const uint8_t *)c->out[1].data)[i] != 0;
}

/* Bits beyond the last element. */
static uint32_t bits_beyond(const op_case *c, int64_t count) {
    const int64_t rest = count % 32;
    return rest == 0 ? 0 : ((const uint32_t *)c->out[1].data)[count / 32] >> rest;
}

static void check_form(mp_device *device, const form *f, mp_dtype type, int64_t columns,
                       int32_t align) {
    enum { ROWS = 601 };
    const int64_t count = ROWS * columns, biases = f->whole_bias ? count : columns;
    const float ratio = 0.25f;
    const uint8_t yes = 1;
    void *x = op_numbers(type, 1, count), *bias = op_numbers(type, 2, biases),
         *residual = op_numbers(type, 3, count);
    const op_tensor given = op_tensor_of(MP_F32, &ratio, 0, NULL);
    const op_tensor mode = op_tensor_of(MP_BOOL, &yes, 0, NULL);
    op_case c = {.domain = "com.microsoft",
                 .name = f->name,
                 .version = 1,
                 .align = align,
                 .skew = align == 1 ? (uint32_t)mp_dtype_size(type) : 0,
                 .in = {OP_TENSOR(type, x, ROWS, columns)},
                 .in_count = f->biased ? 5 : 3,
                 .out_count = 2};
    if (f->biased) {
        c.in[1] =
            f->whole_bias ? OP_TENSOR(type, bias, ROWS, columns) : OP_TENSOR(type, bias, columns);
        c.in[2] =
            f->residual ? OP_TENSOR(type, residual, ROWS, columns) : (op_tensor){.type = MP_NONE};
    }
    c.in[c.in_count - 2] = given;
    c.in[c.in_count - 1] = mode;
    op_run(device, &c);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool here = stays(&c, f->bits, i);
        double want = op_real(type, x, i) + (f->biased ? op_real(type, bias, i % biases) : 0);
        want = here ? want / (1 - (double)ratio) : 0;
        want += f->residual ? op_real(type, residual, i) : 0;
        op_check_close(op_real(type, c.out[0].data, i), want, 2 * op_precision(type), f->name, i);
        kept += here;
    }
    op_check_close((double)kept / (double)count, 1 - (double)ratio,
                   6 * sqrt(0.25 * 0.75 / (double)count), "kept", 0);
    CHECK(!f->bits || bits_beyond(&c, count) == 0);
    op_close(device, &c);
    free(x);
    free(bias);
    free(residual);
}

DEVICE_TEST(dropout_with_bias_residual_and_bits) {
    const form forms[] = {{"BitmaskDropout", .bits = true},
                          {"BiasDropout", .biased = true},
                          {"BiasDropout", .biased = true, .residual = true},
                          {"BitmaskBiasDropout", .bits = true, .biased = true, .residual = true},
                          {"BitmaskBiasDropout", .bits = true, .biased = true, .whole_bias = true}};
    const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        for (int t = 0; t < 4; t++) {
            check_form(device, &forms[f], types[t], 32, 16);
        }
        const int64_t columns[] = {1, 3, 13, 40};
        for (int k = 0; k < 4; k++) {
            check_form(device, &forms[f], MP_F32, columns[k], 16);
            check_form(device, &forms[f], MP_F16, columns[k], 1);
        }
    }
}

DEVICE_TEST(dropout_with_bias_refuses_what_does_not_fit) {
    const float x[24] = {0}, half[2] = {0.5f, 0.5f};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "BiasDropout",
                 .version = 1,
                 .in = {op_f32(x, 2, 3, 4), op_f32(x, 3)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the bias of shape 3 is neither");
    c.in[1] = op_f32(x, 4);
    c.in[2] = op_f32(x, 2, 12);
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "residual of shape 2x12");
    c.in[2] = op_f32(x, 2, 3, 4);
    c.in[3] = op_f32(half, 2);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "ratio of shape 2");
    c.in[3] = op_f32(half, 1);
    c.in[4] = OP_TENSOR(MP_BOOL, x, 2);
    c.in_count = 5;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "training_mode of shape 2");
}
