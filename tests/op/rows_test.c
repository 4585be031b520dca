/* rows_test.c - Softmax, LogSoftmax and LayerNormalization against loops over each row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Where row `r` of [outer][columns][inner] begins. */
static int64_t row_start(int64_t r, int64_t columns, int64_t inner) {
    return r / inner * columns * inner + r % inner;
}

static void check_row(const op_tensor *out, const void *x, bool logarithm, int64_t first,
                      int64_t columns, int64_t inner) {
    const mp_dtype type = out->type;
    double most = -(double)INFINITY;
    double sum = 0;
    for (int64_t k = 0; k < columns; k++) {
        most = fmax(most, op_real(type, x, first + k * inner));
    }
    for (int64_t k = 0; k < columns; k++) {
        sum += exp(op_real(type, x, first + k * inner) - most);
    }
    for (int64_t k = 0; k < columns; k++) {
        const int64_t i = first + k * inner;
        const double off = op_real(type, x, i) - most;
        const double want = logarithm ? off - log(sum) : exp(off) / sum;
        op_check_close(op_real(type, out->data, i), op_rounded(type, want),
                       op_precision(type) + (type == MP_F64 ? 1e-14 : 2e-6), "softmax", i);
    }
}

static void check_softmax(mp_device *device, bool logarithm, int version, int64_t axis, op_tensor x,
                          int64_t columns, int64_t inner) {
    const mp_attr attrs[] = {OP_INT("axis", axis)};
    op_case c = {.name = logarithm ? "LogSoftmax" : "Softmax",
                 .version = version,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {x},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(mp_shape_equal(&c.out[0].shape, &x.shape));
    const int64_t count = mp_shape_count(&x.shape);
    for (int64_t r = 0; columns > 0 && r < count / columns; r++) {
        check_row(&c.out[0], x.data, logarithm, row_start(r, columns, inner), columns, inner);
    }
    op_close(device, &c);
}

DEVICE_TEST(softmax_along_any_axis) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        const mp_dtype type = op_types[t];
        if ((op_types_of("Softmax", 13) & MP_BIT(type)) == 0) {
            continue;
        }
        void *x = op_numbers(type, 3, 3 * 4 * 70);
        const op_tensor in = OP_TENSOR(type, x, 3, 4, 70);
        for (int logarithm = 0; logarithm < 2; logarithm++) {
            check_softmax(device, logarithm != 0, 13, -1, in, 70, 1);
            check_softmax(device, logarithm != 0, 13, 1, in, 4, 70);
            check_softmax(device, logarithm != 0, 13, 0, in, 3, 280);
        }
        free(x);
    }
}

/* Up to version 11 everything from the axis on is one row. */
DEVICE_TEST(softmax_of_old_flattens) {
    void *x = op_numbers(MP_F32, 4, 3 * 4 * 70);
    const op_tensor in = op_f32(x, 3, 4, 70);
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        check_softmax(device, logarithm != 0, 1, 1, in, 280, 1);
        check_softmax(device, logarithm != 0, 11, 2, in, 70, 1);
        check_softmax(device, logarithm != 0, 11, -3, in, 840, 1);
        check_softmax(device, logarithm != 0, 11, 3, in, 1, 1);
    }
    free(x);
}

DEVICE_TEST(softmax_of_long_rows) {
    void *x = op_numbers(MP_F32, 5, 2 * 5003);
    check_softmax(device, false, 13, 1, op_f32(x, 2, 5003), 5003, 1);
    check_softmax(device, true, 13, 1, op_f32(x, 2, 5003), 5003, 1);
    free(x);
}

DEVICE_TEST(softmax_does_not_overflow) {
    const float x[] = {1e4f, 1e4f, -1e4f, 3e38f, -3e38f, 0, -INFINITY, 2, 2};
    check_softmax(device, false, 13, 1, op_f32(x, 3, 3), 3, 1);
    const float want[] = {-0.6931472f, -0.6931472f, -20000.693f};
    const mp_attr attrs[] = {OP_INT("axis", 1)};
    op_case c = {.name = "LogSoftmax",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 3, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < 3; i++) {
        op_check_close(op_real(MP_F32, c.out[0].data, i), (double)want[i], 1e-6, "log", i);
    }
    CHECK(op_real(MP_F32, c.out[0].data, 6) == -(double)INFINITY);
    op_close(device, &c);
}

/* A row of -inf has no meaning, and one with a NaN or +inf neither; none may spoil its neighbour.
 */
DEVICE_TEST(softmax_of_rows_without_meaning) {
    const float x[] = {-INFINITY, -INFINITY, -INFINITY, 0, 0, 0, 1, NAN, 2, INFINITY, 1, 0};
    op_case c = {
        .name = "Softmax", .version = 13, .in = {op_f32(x, 4, 3)}, .in_count = 1, .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < 3; i++) {
        CHECK(isnan(op_real(MP_F32, c.out[0].data, i)));
        op_check_close(op_real(MP_F32, c.out[0].data, 3 + i), 1.0 / 3, 1e-6, "softmax", 3 + i);
        CHECK(isnan(op_real(MP_F32, c.out[0].data, 6 + i)));
    }
    CHECK(isnan(op_real(MP_F32, c.out[0].data, 9)));
    op_close(device, &c);
}

DEVICE_TEST(softmax_of_nothing_and_of_a_scalar) {
    const float one[] = {5};
    check_softmax(device, false, 13, 1, op_f32("", 3, 0, 2), 0, 2);
    op_case c = {.name = "Softmax",
                 .version = 13,
                 .in_count = 1,
                 .out_count = 1,
                 .in = {op_tensor_of(MP_F32, one, 0, NULL)}};
    op_run(device, &c);
    CHECK(*(const float *)c.out[0].data == 1.0f);
    op_close(device, &c);
}

/* ---- LayerNormalization ---- */

static void check_layer_norm(mp_device *device, mp_dtype type, int64_t rows, int64_t columns,
                             bool with_bias, double offset) {
    const double epsilon = 1e-3;
    void *x = op_numbers(type, 6, rows * columns);
    void *scale = op_numbers(type, 7, columns);
    void *bias = op_numbers(type, 8, columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        op_store_real(type, x, i, op_real(type, x, i) + offset);
    }
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_FLOAT("epsilon", (float)epsilon)};
    op_case c = {.name = "LayerNormalization",
                 .version = 17,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {OP_TENSOR(type, x, rows, columns), OP_TENSOR(type, scale, columns),
                        OP_TENSOR(type, bias, columns)},
                 .in_count = with_bias ? 3 : 2,
                 .out_count = 3};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[1].shape.dim[0], rows);
    CHECK_EQ_INT(c.out[1].shape.dim[1], 1);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0;
        double variance = 0;
        op_moments(type, x, r * columns, columns, &mean, &variance);
        const double inverse = 1 / sqrt(variance + epsilon);
        op_check_close(op_real(MP_F32, c.out[1].data, r), mean, 1e-5, "mean", r);
        op_check_close(op_real(MP_F32, c.out[2].data, r), inverse, 1e-4, "inverse", r);
        for (int64_t k = 0; k < columns; k++) {
            const int64_t i = r * columns + k;
            const double want = (op_real(type, x, i) - mean) * inverse * op_real(type, scale, k) +
                                (with_bias ? op_real(type, bias, k) : 0);
            op_check_close(op_real(type, c.out[0].data, i), want, op_precision(type) + 2e-5,
                           "normal", i);
        }
    }
    op_close(device, &c);
    free(x);
    free(scale);
    free(bias);
}

DEVICE_TEST(layer_norm_of_every_type) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("LayerNormalization", 17) & MP_BIT(op_types[t])) != 0) {
            check_layer_norm(device, op_types[t], 5, 33, true, 0);
            check_layer_norm(device, op_types[t], 3, 1, false, 0);
        }
    }
}

DEVICE_TEST(layer_norm_of_long_rows) {
    check_layer_norm(device, MP_F32, 2, 3000, true, 0);
}

/* The variance of numbers that lie close together, far from zero. */
DEVICE_TEST(layer_norm_does_not_cancel) {
    check_layer_norm(device, MP_F32, 3, 257, true, 1000);
}

DEVICE_TEST(layer_norm_refuses_a_scale_of_another_size) {
    const float x[6] = {0};
    mp_plan *plan = NULL;
    const op_case c = {.name = "LayerNormalization",
                       .version = 17,
                       .in = {op_f32(x, 2, 3), op_f32(x, 2)},
                       .in_count = 2,
                       .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "Scale of shape 2 for rows of 3");
}
