/* rows_mma_test.c - products of some rows against plain loops, of results that are spread over the
 * whole: what reaches every tile of the kernel of ours on a GPU of some hundred multiprocessors,
 * and blocks that share sums; tails of rows, columns and chunks; B as it is or turned; a bias, a
 * residual, activations; what it does not take. Two runs give the same bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum added { NOTHING, BIAS, RESIDUAL } added;

typedef struct subject {
    int64_t m, k, n;
    const char *activation;
    float number; /* of the activation; 0: none */
    added added;
    bool turned;
} subject;

static const subject subjects[] = {
    {128, 64, 512, "Gelu", 0, BIAS, false},        /* 16 x 32 */
    {121, 96, 768, "Gelu", 0, BIAS, true},         /* 32 x 32 */
    {197, 64, 1152, "Swish", 1.702F, BIAS, false}, /* 32 x 64 */
    {250, 64, 1528, "Gelu", 0, BIAS, true},        /* 64 x 48 */
    {250, 32, 1528, "Gelu", 1, NOTHING, false},
    {128, 160, 760, "Silu", 0, RESIDUAL, false},
    {9, 32, 8, "Sigmoid", 0, BIAS, false}, /* a corner of one tile */
    {12, 384, 384, "", 0, BIAS, false},    /* blocks that share sums, and so on: */
    {16, 1536, 40, "Relu", 0, RESIDUAL, true},
    {37, 2080, 96, "Tanh", 0, BIAS, false},
    {100, 1024, 200, "HardSwish", 0, RESIDUAL, true},
    {64, 40, 64, "Gelu", 0, BIAS, false},  /* no whole chunks of 16 bits */
    {64, 64, 60, "Gelu", 0, BIAS, false},  /* rows of B that begin anywhere */
    {8, 64, 64, "Gelu", 0, BIAS, false},   /* too few rows */
    {257, 32, 64, "Gelu", 0, BIAS, false}, /* too many */
    {70, 200, 104, "Gelu", 0, BIAS, true}, /* a rest of k, of rows and of columns, ... */
    {65, 72, 136, "Relu", 0, RESIDUAL, false},
    {130, 1096, 72, "", 0, BIAS, true}, /* ... shared */
    {130, 3072, 136, "Silu", 0, RESIDUAL, false},
    {130, 64, 136, "LeakyRelu", 0.1F, BIAS, true},
    {70, 128, 72, "Clip", -0.5F, RESIDUAL, true},
    {33, 64, 48, "HardSigmoid", 0.25F, BIAS, false},
};
static const subject deep = {128, 2048, 768, "", 0, RESIDUAL, false}; /* shared 64 x 48 */

/* One large tile for most multiprocessors of an H100 or H200. */
static const subject wide[] = {
    {512, 200, 3072, "Gelu", 0, BIAS, true},    /* 128 x 96 */
    {500, 40, 2904, "Gelu", 0, RESIDUAL, true}, /* ... with a rest of k, of rows and of columns */
    {384, 776, 5000, "Silu", 0, NOTHING, true}, /* 128 x 128 */
    {384, 72, 5000, "Clip", -1, BIAS, true},
    {1021, 104, 2312, "Swish", 1.702F, BIAS, true}, /* 128 x 192 */
    {1024, 72, 2304, "", 0, RESIDUAL, true},        /* of floats alone */
};

static bool has_second(const subject *s) {
    return strcmp(s->activation, "Clip") == 0 || strcmp(s->activation, "HardSigmoid") == 0;
}

/* The second number of such activations. */
static float second_of(const subject *s) {
    return 1 - s->number;
}

static double activated(const subject *s, double x) {
    if (strcmp(s->activation, "Relu") == 0) {
        return x < 0 ? 0 : x;
    }
    if (strcmp(s->activation, "LeakyRelu") == 0) {
        return x < 0 ? (double)s->number * x : x;
    }
    if (has_second(s) && s->activation[0] == 'C') {
        return fmin(fmax(x, (double)s->number), (double)second_of(s));
    }
    if (has_second(s)) {
        return fmin(fmax((double)s->number * x + (double)second_of(s), 0), 1);
    }
    if (strcmp(s->activation, "Sigmoid") == 0) {
        return 1 / (1 + exp(-x));
    }
    if (strcmp(s->activation, "Tanh") == 0) {
        return tanh(x);
    }
    if (strcmp(s->activation, "HardSwish") == 0) {
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    }
    if (strcmp(s->activation, "Silu") == 0 || strcmp(s->activation, "Swish") == 0) {
        return x / (1 + exp(-x * (s->number != 0 ? (double)s->number : 1)));
    }
    if (strcmp(s->activation, "Gelu") != 0) {
        return x;
    }
    return s->number != 0 ? x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
                          : x / 2 * (1 + erf(x / sqrt(2)));
}

/* What an element should be; `*size`: of what is summed. */
static double expected(const subject *s, const op_case *c, int64_t i, double *size) {
    const mp_dtype type = c->in[0].type;
    const int64_t row = i / s->n, column = i % s->n;
    double sum = 0;
    for (int64_t j = 0; j < s->k; j++) {
        const double term =
            op_real(type, c->in[0].data, row * s->k + j) *
            op_real(type, c->in[1].data, s->turned ? column * s->k + j : j * s->n + column);
        sum += term / 8;
        *size += fabs(term) / 8;
    }
    if (s->added != NOTHING) {
        sum += op_real(type, c->in[2].data, s->added == BIAS ? column : i);
    }
    return activated(s, sum);
}

static void check_some(const subject *s, const op_case *c) {
    enum { CHECKED = 1500 };
    const int64_t step = s->m * s->n / CHECKED | 1; /* odd: all columns come */
    for (int64_t i = 0; i < s->m * s->n; i += step) {
        double size = 0;
        const double want = expected(s, c, i, &size);
        const double off = fabs(op_real(c->in[0].type, c->out[0].data, i) - want);
        const double bound = 1e-6 * size + 2 * (1 + fabs(want)) * op_precision(c->in[0].type);
        if (!(off <= bound)) {
            test_fail(__FILE__, __LINE__, "element %lld of %lldx%lldx%lld of %s is off by %g",
                      (long long)i, (long long)s->m, (long long)s->k, (long long)s->n,
                      mp_dtype_name(c->in[0].type), off);
        }
    }
}

static void check_subject(mp_device *device, const subject *s, mp_dtype type, bool constant) {
    const mp_attr attrs[] = {OP_FLOAT("alpha", 0.125F), OP_INT("transB", s->turned),
                             OP_TEXT("activation", s->activation),
                             OP_FLOAT("activation_alpha", s->number),
                             OP_FLOAT("activation_beta", second_of(s))};
    const int64_t rows = s->added == RESIDUAL ? s->m : 1;
    void *a = op_numbers(type, 1, s->m * s->k), *b = op_numbers(type, 2, s->k * s->n);
    void *z = op_numbers(type, 3, rows * s->n);
    op_case c = {
        .domain = "com.microsoft",
        .name = "FusedGemm",
        .version = 1,
        .options = {.tf32 = true},
        .in = {OP_TENSOR(type, a, s->m, s->k),
               s->turned ? OP_TENSOR(type, b, s->n, s->k) : OP_TENSOR(type, b, s->k, s->n),
               s->added == RESIDUAL ? OP_TENSOR(type, z, s->m, s->n) : OP_TENSOR(type, z, s->n)},
        .in_count = s->added == NOTHING ? 2 : 3,
        .out_count = 1,
        .attrs = attrs,
        .attr_count = has_second(s)    ? 5
                      : s->number != 0 ? 4
                                       : 3,
        .constant = constant ? 2 : 0};
    op_run(device, &c);
    check_some(s, &c);
    const size_t bytes = (size_t)(s->m * s->n) * mp_dtype_size(type);
    void *first = malloc(bytes);
    CHECK(first != NULL);
    memcpy(first, c.out[0].data, bytes);
    op_close(device, &c);
    op_run(device, &c);
    CHECK(memcmp(first, c.out[0].data, bytes) == 0);
    op_close(device, &c);
    free(first);
    free(a);
    free(b);
    free(z);
}

DEVICE_TEST(rows_mma_are_products) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        check_subject(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)],
                      i % 2 == 0);
    }
}

DEVICE_TEST(tile_wgmma_are_products) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(wide) * MP_COUNT_OF(types); i++) {
        check_subject(device, &wide[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)],
                      i % 2 == 0);
    }
}

DEVICE_TEST(rows_mma_share_long_sums) {
    check_subject(device, &deep, MP_F16, true);
}

/* A NaN or an infinity stays in its row or its column, also where tiles end. */
DEVICE_TEST(rows_mma_keep_nan_and_infinity_apart) {
    enum { M = 33, K = 64, N = 40 };
    float a[M * K], b[K * N], bias[N] = {0};
    for (int i = 0; i < M * K; i++) {
        a[i] = 1;
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = 0.5F;
    }
    a[(M - 1) * K + 7] = INFINITY;
    b[5 * N + N - 1] = NAN;
    const mp_attr attrs[] = {OP_TEXT("activation", "Gelu")};
    op_case c = {.domain = "com.microsoft",
                 .name = "FusedGemm",
                 .version = 1,
                 .options = {.tf32 = true},
                 .in = {op_f32(a, M, K), op_f32(b, K, N), op_f32(bias, N)},
                 .in_count = 3,
                 .out_count = 1,
                 .attrs = attrs,
                 .attr_count = 1};
    op_run(device, &c);
    for (int i = 0; i < M * N; i++) {
        const float got = ((const float *)c.out[0].data)[i];
        CHECK(i % N == N - 1 ? isnan(got) : i / N == M - 1 ? isinf(got) : got == 32);
    }
    op_close(device, &c);
}
