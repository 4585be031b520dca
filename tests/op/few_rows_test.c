/* few_rows_test.c - products of few rows against plain loops: columns and depths that are no
 * multiples of what a lane, a block or a cluster takes, a right side that is turned, unaligned
 * memory, a bias, a residual, NaN, infinity.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct subject {
    int64_t m, k, n;
    bool unaligned, turned;
} subject;

static const subject subjects[] = {
    {1, 576, 960, false, false},  {1, 33, 256, false, false},    {2, 100, 257, false, false},
    {3, 576, 300, false, false},  {4, 64, 600, false, false},    {4, 515, 256, false, false},
    {1, 1100, 264, false, false}, {1, 64, 264, true, false},     {4, 300, 259, true, false},
    {5, 64, 256, false, false},   {1, 1024, 1000, false, false}, {16, 288, 328, false, false},
    {9, 512, 264, false, false},  {17, 64, 256, false, false},   {1, 1024, 1000, false, true},
    {1, 200, 256, false, true},   {2, 1056, 259, false, true},   {4, 36, 300, false, true},
    {8, 96, 270, false, true},    {16, 512, 257, false, true},   {3, 64, 256, true, true},
};
static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};

static op_case case_of(const subject *s, mp_dtype type, const void *a, const void *b) {
    static const mp_attr turned[] = {OP_INT("transB", 1)};
    return (op_case){.name = s->turned ? "Gemm" : "MatMul",
                     .version = 13,
                     .align = s->unaligned ? 1 : 16,
                     .skew = s->unaligned ? (uint32_t)mp_dtype_size(type) : 0,
                     .attrs = turned,
                     .attr_count = s->turned ? 1 : 0,
                     .in = {OP_TENSOR(type, a, s->m, s->k),
                            OP_TENSOR(type, b, s->turned ? s->n : s->k, s->turned ? s->k : s->n)},
                     .in_count = 2,
                     .out_count = 1};
}

static double sum_of(const subject *s, mp_dtype type, const void *a, const void *b, int64_t i,
                     double *size) {
    const int64_t row = i / s->n, column = i % s->n;
    double sum = 0;
    for (int64_t j = 0; j < s->k; j++) {
        const double weight = op_real(type, b, s->turned ? column * s->k + j : j * s->n + column);
        const double term = op_real(type, a, row * s->k + j) * weight;
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* May be off by what additions of floats lose of the terms, and by a rounding of the type.
 * `added` has a value for each element or, with `row`, for each column; NULL: nothing. */
static void check(const op_case *c, const subject *s, const void *added, bool row, double alpha,
                  double beta) {
    const mp_dtype type = c->in[0].type;
    for (int64_t i = 0; i < s->m * s->n; i++) {
        double size = 0;
        double want = alpha * sum_of(s, type, c->in[0].data, c->in[1].data, i, &size);
        want += added != NULL ? beta * op_real(type, added, row ? i % s->n : i) : 0;
        const double off = fabs(op_real(type, c->out[0].data, i) - want);
        if (!(off <= 1e-6 * size + (1 + fabs(want)) * op_precision(type))) {
            test_fail(__FILE__, __LINE__, "element %lld of %lldx%lldx%lld of %s is off by %g",
                      (long long)i, (long long)s->m, (long long)s->k, (long long)s->n,
                      mp_dtype_name(type), off);
        }
    }
}

DEVICE_TEST(few_rows_are_products) {
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        const subject *s = &subjects[i / MP_COUNT_OF(types)];
        const mp_dtype type = types[i % MP_COUNT_OF(types)];
        void *a = op_numbers(type, 1, s->m * s->k), *b = op_numbers(type, 2, s->k * s->n);
        op_case c = case_of(s, type, a, b);
        for (uint32_t constant = 0; constant < 2; constant++) {
            c.constant = constant << 1;
            op_run(device, &c);
            CHECK_EQ_INT(c.out[0].type, type);
            check(&c, s, NULL, false, 1, 0);
            op_close(device, &c);
        }
        free(a);
        free(b);
    }
}

DEVICE_TEST(few_rows_have_a_bias_or_a_residual) {
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        const subject *s = &subjects[i / MP_COUNT_OF(types)];
        const mp_dtype type = types[i % MP_COUNT_OF(types)];
        const mp_attr attrs[] = {OP_FLOAT("alpha", 0.5f), OP_FLOAT("beta", 1),
                                 OP_INT("transB", s->turned)};
        const mp_attr less[] = {OP_FLOAT("beta", 0.25f), OP_INT("transB", s->turned)};
        void *a = op_numbers(type, 1, s->m * s->k), *b = op_numbers(type, 2, s->k * s->n);
        void *added = op_numbers(type, 3, s->m * s->n);
        op_case c = case_of(s, type, a, b);
        c.name = "Gemm";
        c.in_count = 3;
        c.in[2] = OP_TENSOR(type, added, s->n);
        c.attrs = attrs;
        c.attr_count = 3;
        op_run(device, &c);
        check(&c, s, added, true, 0.5, 1);
        op_close(device, &c);
        c.in[2] = OP_TENSOR(type, added, s->m, s->n);
        c.attrs = less;
        c.attr_count = 2;
        op_run(device, &c);
        check(&c, s, added, false, 1, 0.25);
        op_close(device, &c);
        free(a);
        free(b);
        free(added);
    }
}

/* A NaN or an infinity stays in its row and its column. */
DEVICE_TEST(few_rows_keep_nan_and_infinity_apart) {
    enum { K = 50, N = 300 };
    float a[2 * K], *b = op_numbers(MP_F32, 2, K * N);
    for (int i = 0; i < 2 * K; i++) {
        a[i] = 1;
    }
    a[K + 7] = INFINITY;
    b[5 * N + 298] = NAN;
    const subject s = {2, K, N, false, false};
    op_case c = case_of(&s, MP_F32, a, b);
    op_run(device, &c);
    for (int i = 0; i < 2 * N; i++) {
        const float got = ((const float *)c.out[0].data)[i], by = b[7 * N + i % N];
        CHECK(i % N == 298 ? isnan(got)
              : i < N      ? isfinite(got)
              : by == 0    ? isnan(got)
                           : isinf(got));
    }
    op_close(device, &c);
    free(b);
}
