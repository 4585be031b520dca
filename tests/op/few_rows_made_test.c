/* few_rows_made_test.c - a row that is made before it is multiplied, by the product's kernel or by
 * a step before it: depths and columns that fit one kernel or another, and the sum that is wanted
 * beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct subject {
    int64_t k, n;
    bool gate, skip;
} subject;

static const subject subjects[] = {
    {64, 256, false, false},   {1056, 520, false, true}, {40, 264, false, true},
    {2048, 1024, false, true}, {64, 300, false, false},  {6176, 256, false, false},
    {1024, 1000, true, false}, {72, 256, true, false},
};

/* The row as it would be between two kernels. */
static void make_row(const op_case *c, const subject *s, double *out) {
    const mp_dtype type = c->in[0].type;
    double squares = 0;
    for (int64_t i = 0; i < s->k; i++) {
        const double a = op_real(type, c->in[0].data, i);
        out[i] = a;
        if (s->gate) {
            const double by = op_real(type, c->in[0].data, s->k + i);
            out[i] = op_rounded(type, a / (1 + exp(-a)) * by);
        } else if (s->skip) {
            out[i] += op_real(type, c->in[3].data, i);
        }
        squares += out[i] * out[i];
    }
    for (int64_t i = 0; i < s->k && !s->gate; i++) {
        const double normal = out[i] / sqrt(squares / (double)s->k + 0.25);
        out[i] = op_rounded(type, normal * op_real(type, c->in[4].data, i));
    }
}

static void check(const op_case *c, const subject *s, const double *row) {
    const mp_dtype type = c->in[0].type;
    for (int64_t i = 0; i < s->n; i++) {
        double want = op_real(type, c->in[2].data, i), size = fabs(want);
        for (int64_t k = 0; k < s->k; k++) {
            const double term = row[k] * op_real(type, c->in[1].data, k * s->n + i);
            want += term;
            size += fabs(term);
        }
        const double off = fabs(op_real(type, c->out[0].data, i) - want);
        if (!(off <= size * op_precision(type) * 2)) {
            test_fail(__FILE__, __LINE__, "column %lld of %lldx%lld of %s is off by %g of %g",
                      (long long)i, (long long)s->k, (long long)s->n, mp_dtype_name(type), off,
                      size);
        }
    }
    for (int64_t i = 0; i < s->k && s->skip; i++) {
        const double sum = op_real(type, c->in[0].data, i) + op_real(type, c->in[3].data, i);
        CHECK(op_real(type, c->out[1].data, i) == op_rounded(type, sum));
    }
}

DEVICE_TEST(few_rows_that_are_made_before) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        const subject *s = &subjects[i / MP_COUNT_OF(types)];
        const mp_dtype type = types[i % MP_COUNT_OF(types)];
        const mp_attr attrs[] = {s->gate ? (mp_attr)OP_TEXT("gate", "swish")
                                         : (mp_attr)OP_FLOAT("epsilon", 0.25f)};
        void *x = op_numbers(type, 1, s->k * 2), *b = op_numbers(type, 2, s->k * s->n);
        void *bias = op_numbers(type, 3, s->n), *skip = op_numbers(type, 4, s->k);
        void *by = op_numbers(type, 5, s->k);
        double *row = calloc((size_t)s->k, sizeof *row);
        CHECK(row != NULL);
        op_case c = {.domain = MP_OWN_DOMAIN,
                     .name = s->gate ? "GatedMatMul" : "NormMatMul",
                     .version = 1,
                     .align = 16,
                     .attrs = attrs,
                     .attr_count = 1,
                     .constant = 1U << 1 | 1U << 4,
                     .in = {OP_TENSOR(type, x, 1, s->gate ? s->k * 2 : s->k),
                            OP_TENSOR(type, b, s->k, s->n), OP_TENSOR(type, bias, s->n)},
                     .in_count = s->gate ? 3 : 5,
                     .out_count = s->gate ? 1 : 2,
                     .out_absent = s->skip ? 0 : 1U << 1};
        if (!s->gate) {
            c.in[3] = s->skip ? OP_TENSOR(type, skip, 1, s->k) : c.in[3];
            c.in[4] = OP_TENSOR(type, by, s->k);
        }
        op_run(device, &c);
        make_row(&c, s, row);
        check(&c, s, row);
        op_close(device, &c);
        free(x);
        free(b);
        free(bias);
        free(skip);
        free(by);
        free(row);
    }
}
