/* matmul_pair_test.c - MatMulPair against plain loops: shapes that one kernel takes on a GPU of
 * some hundred multiprocessors, by blocks alone and by clusters, with each activation, tails of
 * rows and columns, matrices either way, what may be left out; and those that become two products.
 * Two runs give the same bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { X, W1, B1, W2, B2, RESIDUAL, SCALE, INPUTS };

typedef struct subject {
    int64_t rows, from, inner, to;
    const char *activation;
    float number; /* of the activation; 0: none */
    bool turned, has_biases, has_residual, has_scale, is_loose;
} subject;

static const subject subjects[] = {
    {6401, 96, 192, 96, "Gelu", 0, true, true, true, false, false}, /* 64 rows, by blocks alone */
    {1600, 96, 192, 96, "Gelu", 1, false, true, true, true, false}, /* by clusters */
    {965, 96, 192, 96, "Silu", 0, true, true, false, false, false}, /* 32 rows */
    {3136, 96, 384, 96, "Gelu", 0, false, true, true, true, false},
    {784, 192, 768, 192, "Gelu", 0, false, true, false, true, false},
    {500, 96, 192, 208, "HardSwish", 0, true, true, true, false, false}, /* columns of 32 rows */
    {2000, 16, 40, 8, "Relu", 0, true, false, true, false, false},
    {1999, 72, 136, 56, "Sigmoid", 0, false, true, true, true, false}, /* no whole steps */
    {3000, 48, 96, 48, "Tanh", 0, true, true, true, false, false},
    {3000, 64, 96, 48, "LeakyRelu", 0.1F, true, false, false, true, false},
    {3000, 64, 104, 40, "Clip", -0.5F, false, true, true, false, false},
    {3000, 56, 120, 40, "HardSigmoid", 0.25F, true, true, true, false, false},
    {3000, 64, 96, 64, "Swish", 1.702F, false, true, false, false, false},
    /* two products: few rows, large matrices, what is not aligned, an activation of no device's */
    {9, 64, 96, 48, "Gelu", 0, true, true, true, false, false},
    {70, 264, 96, 48, "Silu", 0, true, true, true, true, false},
    {300, 64, 96, 48, "Gelu", 0, false, true, true, true, true},
    {300, 64, 96, 48, "Elu", 0.5F, true, true, false, false, false},
};

static bool has_second(const subject *s) {
    return strcmp(s->activation, "Clip") == 0 || strcmp(s->activation, "HardSigmoid") == 0;
}

static double activated(const subject *s, double x) {
    const double number = (double)s->number, second = 1 - number;
    switch (s->activation[0]) {
    case 'R':
        return fmax(x, 0);
    case 'L':
        return x < 0 ? number * x : x;
    case 'C':
        return fmin(fmax(x, number), second);
    case 'T':
        return tanh(x);
    case 'E':
        return x < 0 ? number * expm1(x) : x;
    case 'G':
        return number != 0 ? x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
                           : x / 2 * (1 + erf(x / sqrt(2)));
    default:
        break;
    }
    if (strcmp(s->activation, "HardSigmoid") == 0) {
        return fmin(fmax(number * x + second, 0), 1);
    }
    if (strcmp(s->activation, "HardSwish") == 0) {
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    }
    const double sigmoid = 1 / (1 + exp(-x * (number != 0 ? number : 1)));
    return strcmp(s->activation, "Sigmoid") == 0 ? sigmoid : x * sigmoid;
}

static double weight(const subject *s, const op_case *c, int input, int64_t k, int64_t n,
                     int64_t depth, int64_t columns) {
    return op_real(c->in[input].type, c->in[input].data,
                   s->turned ? n * depth + k : k * columns + n);
}

/* What is between, of a row. */
static void make_inner(const subject *s, const op_case *c, int64_t row, double *inner) {
    const mp_dtype type = c->in[X].type;
    for (int64_t h = 0; h < s->inner; h++) {
        double sum = s->has_biases ? op_real(type, c->in[B1].data, h) : 0;
        for (int64_t k = 0; k < s->from; k++) {
            sum += op_real(type, c->in[X].data, row * s->from + k) *
                   weight(s, c, W1, k, h, s->from, s->inner);
        }
        inner[h] = activated(s, sum);
    }
}

static void check_row(const subject *s, const op_case *c, int64_t row, const double *inner) {
    const mp_dtype type = c->in[X].type;
    for (int64_t n = 0; n < s->to; n++) {
        double sum = s->has_biases ? op_real(type, c->in[B2].data, n) : 0, size = 1;
        for (int64_t h = 0; h < s->inner; h++) {
            const double term = inner[h] * weight(s, c, W2, h, n, s->inner, s->to);
            sum += term;
            size += fabs(term);
        }
        const double scale = s->has_scale ? op_real(type, c->in[SCALE].data, n) : 1;
        const double want =
            sum * scale +
            (s->has_residual ? op_real(type, c->in[RESIDUAL].data, row * s->to + n) : 0);
        const double off = fabs(op_real(type, c->out[0].data, row * s->to + n) - want);
        const double step = type == MP_F32 ? 0x1p-11 : op_precision(type); /* TF32 */
        if (!(off <= (size * (1 + fabs(scale)) + fabs(want)) * 2 * step)) {
            test_fail(__FILE__, __LINE__,
                      "row %lld column %lld of %lldx%lldx%lldx%lld %s: off by %g", (long long)row,
                      (long long)n, (long long)s->rows, (long long)s->from, (long long)s->inner,
                      (long long)s->to, mp_dtype_name(type), off);
        }
    }
}

static void check_some(const subject *s, const op_case *c) {
    enum { CHECKED = 40 };
    double *inner = calloc((size_t)s->inner, sizeof *inner);
    CHECK(inner != NULL);
    for (int64_t i = 0; i < CHECKED && s->rows > 0; i++) {
        const int64_t row = i == 0 ? s->rows - 1 : (i * 131 + i % 3) % s->rows;
        make_inner(s, c, row, inner);
        check_row(s, c, row, inner);
    }
    free(inner);
}

/* An eighth of usual numbers, so that sums stay small. */
static void *weights(mp_dtype type, uint64_t seed, int64_t count) {
    void *made = op_numbers(type, seed, count);
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, made, i, op_real(type, made, i) / 8);
    }
    return made;
}

static void fill_case(const subject *s, mp_dtype type, op_case *c, void *data[INPUTS]) {
    const int64_t counts[INPUTS] = {s->rows * s->from,
                                    s->from * s->inner,
                                    s->inner,
                                    s->inner * s->to,
                                    s->to,
                                    s->rows * s->to,
                                    s->to};
    const bool there[INPUTS] = {
        true, true, s->has_biases, true, s->has_biases, s->has_residual, s->has_scale};
    for (int i = 0; i < INPUTS; i++) {
        data[i] = i == W1 || i == W2 ? weights(type, (uint64_t)i + 1, counts[i])
                                     : op_numbers(type, (uint64_t)i + 1, counts[i]);
        c->in[i] = OP_TENSOR(there[i] ? type : MP_NONE, data[i], counts[i]);
    }
    c->in[X].shape = (mp_shape){.rank = 2, .dim = {s->rows, s->from}};
    c->in[RESIDUAL].shape = (mp_shape){.rank = 2, .dim = {s->rows, s->to}};
    c->in[W1].shape = (mp_shape){.rank = 4, .dim = {s->inner, s->from, 1, 1}};
    c->in[W2].shape = (mp_shape){.rank = 4, .dim = {s->to, s->inner, 1, 1}};
    if (!s->turned) {
        c->in[W1].shape = (mp_shape){.rank = 2, .dim = {s->from, s->inner}};
        c->in[W2].shape = (mp_shape){.rank = 2, .dim = {s->inner, s->to}};
    }
}

/* The emulated device has two products for all of them, and fewer rows do. */
static subject scaled(const mp_device *device, const subject *s) {
    enum { EMULATED = 8 };
    subject made = *s;
    if (device->info.kind == MP_DEVICE_HOST) {
        made.rows = MP_MIN(made.rows, EMULATED);
    }
    return made;
}

static void check_subject(mp_device *device, const subject *given, mp_dtype type) {
    const subject of_device = scaled(device, given), *s = &of_device;
    const mp_attr attrs[] = {OP_TEXT("activation", s->activation), OP_INT("turned", s->turned),
                             OP_FLOAT("activation_alpha", s->number),
                             OP_FLOAT("activation_beta", 1 - s->number)};
    op_case c = {.domain = "millpond",
                 .name = "MatMulPair",
                 .version = 1,
                 .options = {.tf32 = true},
                 .in_count = INPUTS,
                 .out_count = 1,
                 .attrs = attrs,
                 .attr_count = has_second(s)    ? 4
                               : s->number != 0 ? 3
                                                : 2,
                 .align = s->is_loose ? 1 : 16,
                 .skew = s->is_loose ? (uint32_t)mp_dtype_size(type) : 0,
                 .constant = s->has_scale ? 1U << W1 | 1U << W2 : 0x5e};
    const size_t bytes = (size_t)(s->rows * s->to) * mp_dtype_size(type);
    void *first = malloc(bytes + 1), *data[INPUTS];
    CHECK(first != NULL);
    fill_case(s, type, &c, data);
    op_run(device, &c);
    check_some(s, &c);
    memcpy(first, c.out[0].data, bytes);
    op_close(device, &c);
    op_run(device, &c);
    CHECK(memcmp(first, c.out[0].data, bytes) == 0);
    op_close(device, &c);
    for (int i = 0; i < INPUTS; i++) {
        free(data[i]);
    }
    free(first);
}

DEVICE_TEST(matmul_pair) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        check_subject(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

DEVICE_TEST(matmul_pair_of_nothing) {
    const subject none = {0, 16, 32, 24, "Relu", 0, false, true, true, true, false};
    check_subject(device, &none, MP_F16);
}
