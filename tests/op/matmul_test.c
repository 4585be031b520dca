/* matmul_test.c - MatMul, with a bias or without, and Gemm against plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static float *values(uint64_t seed, int64_t count) {
    float *data = malloc((size_t)(count + 1) * sizeof *data);
    CHECK(data != NULL);
    for (int64_t i = 0; i < count; i++) {
        data[i] = op_value(seed, i);
    }
    return data;
}

/* out[b] = a[b % a_batches] * x[b % b_batches], row-major. */
static void check_product(const op_case *c, const float *a, int64_t a_batches, const float *b,
                          int64_t b_batches, int64_t batches, int64_t m, int64_t k, int64_t n) {
    const float *got = c->out[0].data;
    for (int64_t i = 0; i < batches * m * n; i++) {
        const int64_t batch = i / (m * n);
        const int64_t row = i / n % m;
        const int64_t column = i % n;
        double sum = 0;
        for (int64_t j = 0; j < k; j++) {
            sum += (double)a[(batch % a_batches * m + row) * k + j] *
                   (double)b[(batch % b_batches * k + j) * n + column];
        }
        op_check_close((double)got[i], sum, 1e-5, "product", i);
    }
}

DEVICE_TEST(matmul_collapses_batches_of_one_weight) {
    float *a = values(1, 2 * 3 * 5 * 7);
    float *b = values(2, 7 * 4);
    op_case c = {.name = "MatMul",
                 .version = 13,
                 .in_count = 2,
                 .out_count = 1,
                 .in = {op_f32(a, 2, 3, 5, 7), op_f32(b, 7, 4)}};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.rank, 4);
    check_product(&c, a, 6, b, 1, 6, 5, 7, 4);
    op_close(device, &c);
    free(a);
    free(b);
}

DEVICE_TEST(matmul_broadcasts_batches_of_both_sides) {
    float *a = values(1, 2 * 1 * 5 * 7);
    float *b = values(2, 1 * 3 * 7 * 4);
    op_case c = {.name = "MatMul",
                 .version = 13,
                 .in_count = 2,
                 .out_count = 1,
                 .in = {op_f32(a, 2, 1, 5, 7), op_f32(b, 1, 3, 7, 4)}};
    op_run(device, &c);
    const float *got = c.out[0].data;
    for (int64_t i = 0; i < 2 * 3 * 5 * 4; i++) {
        double sum = 0;
        for (int64_t j = 0; j < 7; j++) {
            sum += (double)a[(i / 60 * 5 + i / 4 % 5) * 7 + j] *
                   (double)b[(i / 20 % 3 * 7 + j) * 4 + i % 4];
        }
        op_check_close((double)got[i], sum, 1e-5, "product", i);
    }
    op_close(device, &c);
    free(a);
    free(b);
}

DEVICE_TEST(matmul_of_vectors_gives_a_scalar) {
    const float a[] = {1, 2, 3};
    const float b[] = {4, 5, 6};
    op_case c = {.name = "MatMul",
                 .version = 9,
                 .in_count = 2,
                 .out_count = 1,
                 .in = {op_f32(a, 3), op_f32(b, 3)}};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.rank, 0);
    CHECK(*(const float *)c.out[0].data == 32.0f);
    op_close(device, &c);
}

DEVICE_TEST(matmul_over_nothing_gives_zeros) {
    op_case c = {.name = "MatMul",
                 .version = 13,
                 .in_count = 2,
                 .out_count = 1,
                 .in = {op_f32("", 2, 0), op_f32("", 0, 3)}};
    op_run(device, &c);
    for (int i = 0; i < 6; i++) {
        CHECK(((const float *)c.out[0].data)[i] == 0.0f);
    }
    op_close(device, &c);
}

DEVICE_TEST(matmul_refuses_shapes_that_do_not_fit) {
    const float a[6] = {0};
    mp_plan *plan = NULL;
    const op_case c = {.name = "MatMul",
                       .version = 13,
                       .in_count = 2,
                       .out_count = 1,
                       .in = {op_f32(a, 2, 3), op_f32(a, 2, 3)}};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "inner dimensions of 2x3 and 2x3");
}

/* ---- a product and a row: what islands make of MatMul and Add ---- */

typedef struct biased {
    mp_shape a, b, bias;
    int64_t rows, k, n; /* rows of all A */
} biased;

static const biased biased_cases[] = {
    {{4, {2, 3, 5, 7}}, {2, {7, 4}}, {1, {4}}, 30, 7, 4},
    {{2, {5, 7}}, {4, {1, 1, 7, 4}}, {1, {4}}, 5, 7, 4},
    {{1, {7}}, {2, {7, 4}}, {1, {4}}, 1, 7, 4},
    {{2, {16, 24}}, {2, {24, 300}}, {1, {300}}, 16, 24, 300}, /* several tiles side by side */
    {{2, {300, 24}}, {2, {24, 16}}, {2, {1, 16}}, 300, 24, 16},
    {{2, {5, 7}}, {2, {7, 1}}, {1, {1}}, 5, 7, 1},
    {{3, {2, 5, 7}}, {1, {7}}, {0, {0}}, 10, 7, 1}, /* a matrix by a vector, and a scalar */
    {{2, {3, 0}}, {2, {0, 4}}, {1, {4}}, 3, 0, 4},  /* sums of nothing: the bias alone */
    {{3, {2, 3, 0}}, {2, {0, 1}}, {1, {1}}, 6, 0, 1},
    {{2, {0, 7}}, {2, {7, 4}}, {1, {4}}, 0, 7, 4},
    {{3, {0, 5, 7}}, {2, {7, 4}}, {1, {4}}, 0, 7, 4},
    {{2, {5, 7}}, {2, {7, 0}}, {1, {0}}, 5, 7, 0},
};

static void check_biased(mp_device *device, const biased *x, mp_dtype type, bool aligned) {
    /* The numbers' sums are exact in float; a library may round before it adds the row, and after.
     */
    const double bound = 2 * op_precision(type);
    void *a = op_numbers(type, 1, x->rows * x->k);
    void *b = op_numbers(type, 2, x->k * x->n);
    void *bias = op_numbers(type, 3, x->n);
    op_case c = {
        .domain = MP_OWN_DOMAIN,
        .name = "MatMulBias",
        .version = 1,
        .align = aligned ? 16 : 1,
        .skew = aligned ? 0 : (uint32_t)mp_dtype_size(type),
        .in = {{type, x->a, a}, {type, x->b, b}, {type, x->bias, bias}},
        .in_count = 3,
        .out_count = 1,
    };
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].type, type);
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), x->rows * x->n);
    for (int64_t i = 0; i < x->rows * x->n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < x->k; j++) {
            sum += op_real(type, a, i / x->n * x->k + j) * op_real(type, b, j * x->n + i % x->n);
        }
        op_check_close(op_real(type, c.out[0].data, i), sum + op_real(type, bias, i % x->n), bound,
                       "Y", i);
    }
    op_close(device, &c);
    free(a);
    free(b);
    free(bias);
}

DEVICE_TEST(matmul_bias_adds_a_row_to_each) {
    const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t i = 0; i < MP_COUNT_OF(biased_cases); i++) {
            check_biased(device, &biased_cases[i], types[t], true);
            check_biased(device, &biased_cases[i], types[t], false);
        }
    }
}

DEVICE_TEST(matmul_bias_refuses_what_is_no_row) {
    mp_plan *plan = NULL;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "MatMulBias",
                 .version = 1,
                 .in_count = 3,
                 .out_count = 1,
                 .in = {op_f32(NULL, 2, 3), op_f32(NULL, 3, 4), op_f32(NULL, 2)}};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT,
                "B of shape 3x4 and a bias of shape 2: B must be one matrix, the bias 4 numbers");
    c.in[1] = op_f32(NULL, 2, 3, 4);
    c.in[2] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a bias of shape (none)");
    c.in[2] = op_f32(NULL, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "B of shape 2x3x4");
    c.in[1] = op_f32(NULL, 2, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "inner dimensions of 2x3 and 2x4");
}

/* ---- Gemm ---- */

/* Every way in which C may lie, transposed or not, with alpha and beta. */
DEVICE_TEST(gemm_adds_c_however_it_broadcasts) {
    enum { M = 5, K = 7, N = 3 };
    float *a = values(1, M * K);
    float *b = values(2, K * N);
    float *added = values(3, M * N);
    const struct {
        op_tensor c;
        int64_t row, column; /* strides */
    } forms[] = {
        {op_f32(added, M, N), N, 1}, {op_f32(added, N), 0, 1}, {op_f32(added, 1, N), 0, 1},
        {op_f32(added, M, 1), 1, 0}, {op_f32(added, 1), 0, 0}, {{.type = MP_NONE}, 0, 0},
    };
    const float betas[] = {1.0f, 0.5f};
    for (size_t f = 0; f < MP_COUNT_OF(forms) * 2; f++) {
        const float beta = betas[f % 2];
        const mp_attr attrs[] = {OP_FLOAT("alpha", 2.0f), OP_FLOAT("beta", beta),
                                 OP_INT("transA", 1)};
        op_case c = {.name = "Gemm",
                     .version = 13,
                     .in_count = 3,
                     .out_count = 1,
                     .attrs = attrs,
                     .attr_count = 3,
                     .in = {op_f32(a, K, M), op_f32(b, K, N), forms[f / 2].c}};
        op_run(device, &c);
        for (int64_t i = 0; i < M * N; i++) {
            double sum = 0;
            for (int64_t j = 0; j < K; j++) {
                sum += 2.0 * (double)a[j * M + i / N] * (double)b[j * N + i % N];
            }
            if (forms[f / 2].c.type != MP_NONE) {
                sum += (double)beta *
                       (double)added[i / N * forms[f / 2].row + i % N * forms[f / 2].column];
            }
            op_check_close((double)((const float *)c.out[0].data)[i], sum, 1e-5, "Y", i);
        }
        op_close(device, &c);
    }
    free(a);
    free(b);
    free(added);
}
