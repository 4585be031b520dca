/* matmul_test.c - MatMul and Gemm against plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_test.h"

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
