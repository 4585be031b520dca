/* spectrum_test.c - DFT and STFT against sums of terms in double. The bound is that of rounding:
 * ONNX Runtime's CPU provider is no strict reference for lengths that are not powers of two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { OUTER = 3 };

typedef struct transform {
    int64_t length, n, inner; /* of the axis, of the transform, behind the axis */
    int parts;
    bool inverse, onesided;
} transform;

typedef struct complex_number {
    double re, im;
} complex_number;

/* Element t of a row, with the half that a onesided inverse leaves out. */
static complex_number element(const transform *c, const float *x, int64_t row, int64_t t) {
    const bool half = c->inverse && c->onesided;
    const bool mirrored = half && t > c->n / 2;
    const int64_t at = mirrored ? c->n - t : t;
    complex_number value = {0, 0};
    if (at < c->length && at < c->n) {
        const int64_t place = (row / c->inner * c->length + at) * c->inner + row % c->inner;
        value.re = (double)x[place * c->parts];
        value.im = c->parts == 2 ? (double)x[place * c->parts + 1] : 0;
        value.im = mirrored ? -value.im : value.im;
    }
    return value;
}

static complex_number term_by_term(const transform *c, const float *x, int64_t row, int64_t k) {
    complex_number sum = {0, 0};
    for (int64_t t = 0; t < c->n; t++) {
        const complex_number value = element(c, x, row, t);
        const double turn = 2 * 3.14159265358979323846 * (double)(t * k % c->n) / (double)c->n;
        const double sine = c->inverse ? sin(turn) : -sin(turn);
        sum.re += value.re * cos(turn) - value.im * sine;
        sum.im += value.re * sine + value.im * cos(turn);
    }
    if (c->inverse) {
        sum.re /= (double)c->n;
        sum.im /= (double)c->n;
    }
    return sum;
}

static void check_transform(mp_device *device, const transform *t) {
    const int64_t count = OUTER * t->length * t->inner * t->parts;
    float *x = calloc((size_t)count + 1, sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = op_value(7, i);
    }
    const int64_t length = t->n, axis = 1;
    const mp_attr attrs[] = {OP_INT("inverse", t->inverse), OP_INT("onesided", t->onesided)};
    op_case c = {.name = "DFT",
                 .version = 20,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(x, OUTER, t->length, t->inner, t->parts),
                        op_tensor_of(MP_I64, &length, 0, NULL),
                        op_tensor_of(MP_I64, &axis, 0, NULL)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    const int64_t made = t->onesided && !t->inverse ? t->n / 2 + 1 : t->n;
    const int64_t parts = t->onesided && t->inverse ? 1 : 2;
    CHECK_EQ_INT(c.out[0].shape.dim[1], made);
    CHECK_EQ_INT(c.out[0].shape.dim[3], parts);
    const float *out = c.out[0].data;
    for (int64_t row = 0; row < OUTER * t->inner; row++) {
        for (int64_t k = 0; k < made; k++) {
            const complex_number want = term_by_term(t, x, row, k);
            const int64_t at = ((row / t->inner * made + k) * t->inner + row % t->inner) * parts;
            /* rounding of sums of n values below 2: a share of their root mean square */
            const double bound = 1e-6 * (t->inverse ? 1 : 1 + sqrt((double)t->n));
            op_check_close((double)out[at], want.re, bound, "real part", at);
            if (parts == 2) {
                op_check_close((double)out[at + 1], want.im, bound, "imaginary part", at);
            }
        }
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(dft_of_every_kind_of_length) {
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 8, 12, 16, 31, 32, 64, 100, 256, 512};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        for (int form = 0; form < 4; form++) {
            const bool inverse = (form & 1) != 0, onesided = (form & 2) != 0;
            const int64_t n = lengths[i];
            const transform t = {.length = n,
                                 .n = n,
                                 .inner = i % 2 == 0 ? 1 : 5,
                                 .parts = onesided && !inverse ? 1 : 2,
                                 .inverse = inverse,
                                 .onesided = onesided};
            check_transform(device, &t);
        }
    }
}

DEVICE_TEST(dft_padded_and_cut) {
    static const int64_t lengths[][2] = {{3, 16}, {30, 16}, {12, 16}, {3, 12}, {30, 12}, {9, 13}};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        for (int form = 0; form < 4; form++) {
            const bool inverse = (form & 1) != 0, onesided = (form & 2) != 0;
            const transform t = {.length = lengths[i][0],
                                 .n = lengths[i][1],
                                 .inner = 3,
                                 .parts = onesided && !inverse ? 1 : 2,
                                 .inverse = inverse,
                                 .onesided = onesided};
            check_transform(device, &t);
        }
    }
}

DEVICE_TEST(dft_too_long_for_a_matrix) {
    const transform t = {.length = 1501, .n = 1501, .inner = 1, .parts = 2};
    check_transform(device, &t);
}

DEVICE_TEST(dft_and_stft_refuse_what_makes_no_sense) {
    const float x[32] = {0};
    const int64_t none = 0, axis = 2, step = 4, far = 99;
    mp_plan *plan = NULL;
    op_case c = {
        .name = "DFT", .version = 20, .in = {op_f32(x, 1, 8, 3)}, .in_count = 1, .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "last dimension");
    c.in[0] = op_f32(x, 1, 8, 2);
    c.in[1] = op_tensor_of(MP_I64, &none, 0, NULL);
    c.in_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "dft_length is 0");
    c.in[1] = (op_tensor){.type = MP_NONE};
    c.in[2] = op_tensor_of(MP_I64, &axis, 0, NULL);
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axis 2");
    const mp_attr attrs[] = {OP_INT("onesided", 1)};
    c.attrs = attrs;
    c.attr_count = 1;
    c.in_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "onesided");
    c = (op_case){.name = "STFT",
                  .version = 17,
                  .in = {op_f32(x, 1, 32, 1), op_tensor_of(MP_I64, &none, 0, NULL)},
                  .in_count = 2,
                  .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "frame_step is 0");
    c.in[1] = op_tensor_of(MP_I64, &step, 0, NULL);
    c.in[3] = op_tensor_of(MP_I64, &far, 0, NULL);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "frames of 99");
}
