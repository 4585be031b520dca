/* bias_test.c - BiasAdd, BiasSplitGelu and BiasSoftmax against loops, with tensors that are aligned
 * and that are not, and rows that are no multiple of what a lane takes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static op_case case_of(const char *name, mp_dtype type, int32_t align) {
    return (op_case){.domain = "com.microsoft",
                     .name = name,
                     .version = 1,
                     .align = align,
                     .skew = align == 1 ? (uint32_t)mp_dtype_size(type) : 0,
                     .out_count = 1};
}

static void check_split_gelu(mp_device *device, mp_dtype type, int64_t half, int32_t align) {
    enum { ROWS = 7 };
    void *x = op_numbers(type, 1, ROWS * 2 * half), *bias = op_numbers(type, 2, 2 * half);
    op_case c = case_of("BiasSplitGelu", type, align);
    c.in[0] = OP_TENSOR(type, x, 1, ROWS, 2 * half);
    c.in[1] = OP_TENSOR(type, bias, 2 * half);
    c.in_count = 2;
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[2], half);
    for (int64_t i = 0; i < ROWS * half; i++) {
        const int64_t left = i / half * 2 * half + i % half, right = left + half;
        const double a = op_real(type, x, left) + op_real(type, bias, i % half);
        const double b = op_real(type, x, right) + op_real(type, bias, half + i % half);
        const double want = a * 0.5 * b * (1 + erf(b / sqrt(2)));
        op_check_close(op_real(type, c.out[0].data, i), want, op_precision(type) + 1e-6, "gelu", i);
    }
    op_close(device, &c);
    free(x);
    free(bias);
}

DEVICE_TEST(bias_split_gelu_of_any_width) {
    const int64_t halves[] = {1, 3, 4, 8, 12, 33, 160};
    for (size_t k = 0; k < MP_COUNT_OF(halves); k++) {
        for (int32_t align = 1; align <= 16; align += 15) {
            check_split_gelu(device, MP_F32, halves[k], align);
            check_split_gelu(device, MP_F16, halves[k], align);
        }
    }
}

/* Rows of x and of the bias miss 16 bytes by different amounts. */
static void check_softmax(mp_device *device, mp_dtype type, int64_t columns, bool inner,
                          int32_t align) {
    enum { BATCH = 2, HEADS = 2 };
    const int64_t rows = BATCH * HEADS, biases = inner ? BATCH : HEADS;
    void *x = op_numbers(type, 3, rows * columns), *bias = op_numbers(type, 4, biases * columns);
    double *power = calloc((size_t)columns, sizeof *power);
    const mp_attr attrs[] = {OP_INT("axis", 2), OP_INT("is_inner_broadcast", inner)};
    op_case c = case_of("BiasSoftmax", type, align);
    c.attrs = attrs;
    c.attr_count = 2;
    c.in[0] = OP_TENSOR(type, x, BATCH, HEADS, columns);
    c.in[1] =
        inner ? OP_TENSOR(type, bias, BATCH, 1, columns) : OP_TENSOR(type, bias, HEADS, columns);
    c.in_count = 2;
    op_run(device, &c);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t its = inner ? r / HEADS : r % HEADS;
        double sum = 0;
        for (int64_t i = 0; i < columns; i++) {
            power[i] =
                exp(op_real(type, x, r * columns + i) + op_real(type, bias, its * columns + i));
            sum += power[i];
        }
        for (int64_t i = 0; i < columns; i++) {
            op_check_close(op_real(type, c.out[0].data, r * columns + i), power[i] / sum,
                           op_precision(type) + 1e-6, "softmax", r * columns + i);
        }
    }
    op_close(device, &c);
    free(x);
    free(bias);
    free(power);
}

DEVICE_TEST(bias_softmax_of_any_width) {
    const int64_t widths[] = {1, 5, 8, 31, 64, 257, 2000, 17001};
    for (size_t k = 0; k < MP_COUNT_OF(widths); k++) {
        for (int inner = 0; inner < 2; inner++) {
            check_softmax(device, MP_F32, widths[k], inner == 1, 16);
            check_softmax(device, MP_F16, widths[k], inner == 1, 1);
        }
        check_softmax(device, MP_F64, widths[k], true, 1);
    }
}

DEVICE_TEST(bias_refuses_what_does_not_fit) {
    const float x[24] = {0};
    mp_plan *plan = NULL;
    op_case c = case_of("BiasAdd", MP_F32, 16);
    c.in[0] = op_f32(x, 2, 3, 4);
    c.in[1] = op_f32(x, 3);
    c.in[2] = op_f32(x, 2, 3, 4);
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the bias of shape 3 is not a row");
    c.in[1] = op_f32(x, 4);
    c.in[2] = op_f32(x, 3, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "skip of shape 3x4");
    c.name = "BiasSplitGelu";
    c.in[0] = op_f32(x, 1, 2, 5);
    c.in[1] = op_f32(x, 5);
    c.in_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cannot be split into halves");
    c.name = "BiasSoftmax";
    c.in[0] = op_f32(x, 2, 3, 4);
    c.in[1] = op_f32(x, 4, 4);
    const mp_attr axis = OP_INT("axis", 2);
    c.attrs = &axis;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT,
                "cannot be repeated along the 6 rows");
    c.in[1] = op_f32(x, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "bias of shape 3 cannot be repeated");
}
