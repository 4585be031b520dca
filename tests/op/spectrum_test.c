/* spectrum_test.c - DFT against sums of terms in double, as the schema defines it: every length
 * takes another way through the passes, and each way has its own edges. ONNX Runtime's CPU provider
 * is no strict reference for lengths that are not powers of two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/spectrum_ref.h"

#include <math.h>
#include <stdlib.h>

typedef struct transform {
    mp_dtype type;            /* 0: float */
    int64_t outer;            /* 0: 3 */
    int64_t length, n, inner; /* of the axis, of the transform, behind the axis */
    int64_t every;            /* how far apart the elements are that are compared; 0: 1 */
    int parts;
    bool inverse, onesided, skewed;
} transform;

/* Element t of a row, with the half that a onesided inverse leaves out. */
static complex_number element(const transform *c, const void *x, int64_t row, int64_t t) {
    const bool half = c->inverse && c->onesided;
    const bool mirrored = half && t > c->n / 2;
    const int64_t at = mirrored ? c->n - t : t;
    complex_number value = {0, 0};
    if (at < c->length && at < c->n) {
        const int64_t place = (row / c->inner * c->length + at) * c->inner + row % c->inner;
        value.re = op_real(c->type, x, place * c->parts);
        value.im = c->parts == 2 ? op_real(c->type, x, place * c->parts + 1) : 0;
        value.im = mirrored ? -value.im : value.im;
    }
    return value;
}

static void check_row(const transform *c, const void *x, const complex_number *roots, int64_t row,
                      const op_tensor *out, double squares[2]) {
    const int64_t made = out->shape.dim[1];
    const double scale = c->inverse ? 1 / (double)c->n : 1;
    double norm = 0;
    complex_number *given = calloc((size_t)c->n, sizeof *given);
    for (int64_t t = 0; t < c->n; t++) {
        given[t] = element(c, x, row, t);
        norm += ref_norm(given[t]);
    }
    for (int64_t k = 0; k < made; k += c->every) {
        complex_number sum = {0, 0};
        int64_t at = 0;
        for (int64_t t = 0; t < c->n; t++) {
            ref_add(&sum, given[t], roots[at], c->inverse);
            at += k;
            at -= at >= c->n ? c->n : 0;
        }
        const complex_number want = {sum.re * scale, sum.im * scale};
        ref_check(out, (row / c->inner * made + k) * c->inner + row % c->inner, out->shape.dim[3],
                  want, sqrt(norm) * scale, squares);
    }
    free(given);
}

/* The energy of a whole spectrum is that of the row, times n: no element is left unseen. */
static void check_energy(const transform *c, const void *x, const op_tensor *out) {
    double given = 0, made = 0;
    const int64_t rows = c->outer * c->inner;
    for (int64_t i = 0; i < rows * c->n; i++) {
        given += ref_norm(element(c, x, i / c->n, i % c->n));
        made += ref_norm((complex_number){op_real(out->type, out->data, 2 * i),
                                          op_real(out->type, out->data, 2 * i + 1)});
    }
    const double wanted = c->inverse ? given / (double)c->n : given * (double)c->n;
    op_check_close(made / wanted, 1, 1e-5, "energy", 0);
}

static void check_transform(mp_device *device, const transform *given) {
    transform t = *given;
    t.type = t.type == MP_NONE ? MP_F32 : t.type;
    t.outer = t.outer > 0 ? t.outer : 3;
    t.every = t.every > 0 ? t.every : 1;
    const int64_t count = t.outer * t.length * t.inner * t.parts;
    void *x = op_memory(t.type, count);
    for (int64_t i = 0; i < count; i++) {
        op_store_real(t.type, x, i, (double)op_value(7, i));
    }
    const int64_t length = t.n, axis = 1;
    const mp_attr attrs[] = {OP_INT("inverse", t.inverse), OP_INT("onesided", t.onesided)};
    op_case c = {.name = "DFT",
                 .version = 20,
                 .attrs = attrs,
                 .attr_count = 2,
                 .align = t.skewed ? 1 : 16,
                 .skew = t.skewed ? (uint32_t)mp_dtype_size(t.type) : 0,
                 .in = {OP_TENSOR(t.type, x, t.outer, t.length, t.inner, t.parts),
                        op_tensor_of(MP_I64, &length, 0, NULL),
                        op_tensor_of(MP_I64, &axis, 0, NULL)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    const op_tensor *out = &c.out[0];
    CHECK_EQ_INT(out->shape.dim[1], t.onesided && !t.inverse ? t.n / 2 + 1 : t.n);
    CHECK_EQ_INT(out->shape.dim[3], t.onesided && t.inverse ? 1 : 2);
    complex_number *roots = ref_roots(t.n);
    double squares[2] = {0, 0};
    for (int64_t row = 0; row < t.outer * t.inner; row++) {
        check_row(&t, x, roots, row, out, squares);
    }
    ref_check_squares(t.type, squares);
    if (!t.onesided && t.type == MP_F32) {
        check_energy(&t, x, out);
    }
    op_close(device, &c);
    free(roots);
    free(x);
}

/* Forward and back, whole and half. */
static void check_forms(mp_device *device, const transform *given) {
    for (int form = 0; form < 4; form++) {
        transform t = *given;
        t.inverse = (form & 1) != 0;
        t.onesided = (form & 2) != 0;
        t.parts = t.onesided && !t.inverse ? 1 : 2;
        check_transform(device, &t);
    }
}

/* Powers of two, odd factors, both; 17 and on by a convolution. */
DEVICE_TEST(dft_of_every_kind_of_length) {
    static const int64_t lengths[] = {1,  2,  3,  4,  5,  8,  9,   12,  13,  16,  17,  26,
                                      30, 31, 32, 34, 64, 77, 100, 147, 202, 256, 257, 320};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        check_forms(
            device,
            &(const transform){.length = lengths[i], .n = lengths[i], .inner = i % 2 == 0 ? 1 : 5});
    }
}

DEVICE_TEST(dft_of_real_numbers_is_whole_too) {
    static const int64_t lengths[] = {1, 6, 16, 34, 51};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        for (int inverse = 0; inverse < 2; inverse++) {
            const transform t = {.length = lengths[i],
                                 .n = lengths[i],
                                 .inner = 2,
                                 .parts = 1,
                                 .inverse = inverse != 0};
            check_transform(device, &t);
        }
    }
}

DEVICE_TEST(dft_padded_and_cut) {
    static const int64_t lengths[][2] = {{3, 16},  {30, 16}, {12, 16}, {3, 12},
                                         {30, 12}, {9, 13},  {5, 23},  {60, 23}};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        check_forms(device,
                    &(const transform){.length = lengths[i][0], .n = lengths[i][1], .inner = 3});
    }
}

/* Rows whose elements lie side by side; those of real numbers half and whole, full and not. */
DEVICE_TEST(dft_of_powers_of_two) {
    static const int64_t lengths[][2] = {{32, 32},   {64, 64},     {128, 128}, {256, 256},
                                         {512, 512}, {1024, 1024}, {90, 128},  {200, 128},
                                         {300, 512}, {2048, 2048}};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        transform t = {.outer = 5,
                       .length = lengths[i][0],
                       .n = lengths[i][1],
                       .inner = 1,
                       .every = 1 + lengths[i][1] / 100};
        check_forms(device, &t);
        t.parts = 1;
        check_transform(device, &t);
        t.length--;
        check_transform(device, &t);
        t.inverse = true;
        check_transform(device, &t);
    }
}

/* Neighbouring rows side by side, some of them in other blocks than the rest of their outer index.
 */
DEVICE_TEST(dft_of_powers_of_two_across) {
    static const int64_t lengths[][3] = {
        {32, 32, 3},   {64, 64, 33},  {128, 128, 17},  {256, 256, 16},  {512, 512, 5},
        {90, 128, 20}, {200, 128, 7}, {1024, 1024, 9}, {2048, 2048, 3}, {4096, 4096, 2}};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        check_forms(device, &(const transform){.outer = 2,
                                               .length = lengths[i][0],
                                               .n = lengths[i][1],
                                               .inner = lengths[i][2],
                                               .every = 1 + lengths[i][1] / 60});
    }
}

DEVICE_TEST(dft_of_powers_of_two_of_every_type) {
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        for (int64_t n = 64; op_is_float(*type) && n <= 512; n *= 2) {
            transform t = {.type = *type, .length = n, .n = n, .inner = 5, .every = 7};
            check_forms(device, &t);
            t.inner = 1;
            check_forms(device, &t);
            t.parts = 1;
            check_transform(device, &t);
        }
    }
}

DEVICE_TEST(dft_of_every_type) {
    static const int64_t lengths[] = {16, 45, 19};
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        for (size_t i = 0; op_is_float(*type) && i < MP_COUNT_OF(lengths); i++) {
            transform t = {.type = *type, .length = lengths[i], .n = lengths[i], .inner = 2};
            check_forms(device, &t);
            t.skewed = true;
            check_forms(device, &t);
        }
    }
}

/* Two launches, of factors that are powers of two, odd, and mixed; the last takes three. */
DEVICE_TEST(dft_in_several_passes) {
    static const int64_t lengths[] = {16384, 10000, 19683, 12250};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        check_forms(device, &(const transform){.outer = 1 + (int64_t)(i % 2),
                                               .length = lengths[i] - 100 * (int64_t)(i % 2),
                                               .n = lengths[i],
                                               .inner = 1 + (int64_t)(i / 2) * 2,
                                               .every = lengths[i] / 7});
    }
    const transform skewed = {.type = MP_F64,
                              .outer = 1,
                              .length = 10000,
                              .n = 10000,
                              .inner = 1,
                              .parts = 2,
                              .every = 999,
                              .skewed = true};
    check_transform(device, &skewed);
}

/* 11^5 takes three launches, the primes convolutions of one to two each. */
DEVICE_TEST(dft_of_long_rows) {
    const transform three = {
        .outer = 1, .length = 161051, .n = 161051, .inner = 1, .parts = 2, .every = 80000};
    const transform prime = {
        .outer = 1, .length = 20011, .n = 20011, .inner = 1, .parts = 2, .every = 3000};
    const transform half = {.outer = 2,
                            .length = 3000,
                            .n = 5003,
                            .inner = 1,
                            .parts = 1,
                            .every = 1000,
                            .onesided = true};
    check_transform(device, &three);
    check_transform(device, &prime);
    check_transform(device, &half);
    check_forms(device, &(const transform){
                            .outer = 1, .length = 4099, .n = 4099, .inner = 3, .every = 2000});
}

/* The first element of the spectrum of real numbers is real, and so is the middle one: models take
 * the angle of them. */
DEVICE_TEST(dft_has_real_ends) {
    static const int64_t lengths[] = {2, 16, 20, 34, 8192, 18750, 10006};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        const int64_t n = lengths[i];
        float *x = op_numbers(MP_F32, 5, n);
        const mp_attr attrs[] = {OP_INT("onesided", 1)};
        op_case c = {.name = "DFT",
                     .version = 20,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {op_f32(x, 1, n, 1)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        const float *out = c.out[0].data;
        CHECK(out[1] == 0 && !signbit(out[1]));
        CHECK(out[n + 1] == 0 && !signbit(out[n + 1]));
        op_close(device, &c);
        free(x);
    }
}

DEVICE_TEST(dft_of_nothing) {
    const float x[1] = {0};
    const int64_t length = 6;
    op_case c = {.name = "DFT",
                 .version = 20,
                 .in = {op_f32(x, 2, 0, 1), op_tensor_of(MP_I64, &length, 0, NULL)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), 24);
    for (int64_t i = 0; i < 24; i++) {
        CHECK(((const float *)c.out[0].data)[i] == 0);
    }
    op_close(device, &c);
    c.in[0] = op_f32(x, 0, 6, 1);
    op_run(device, &c);
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), 0);
    op_close(device, &c);
}

/* ---- refusals ---- */

DEVICE_TEST(dft_refuses_what_makes_no_sense) {
    const float x[32] = {0};
    const int64_t none = 0, axis = 2, prime = ((int64_t)1 << 40) + 15;
    mp_plan *plan = NULL;
    op_case c = {
        .name = "DFT", .version = 20, .in = {op_f32(x, 1, 8, 3)}, .in_count = 1, .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "last dimension");
    c.in[0] = op_f32(x, 1, 8, 2);
    c.in[1] = op_tensor_of(MP_I64, &none, 0, NULL);
    c.in_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "dft_length is 0");
    c.in[1] = op_tensor_of(MP_I64, &prime, 0, NULL);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "prime factor above");
    c.in[1] = (op_tensor){.type = MP_NONE};
    c.in[2] = op_tensor_of(MP_I64, &axis, 0, NULL);
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axis 2");
    const mp_attr attrs[] = {OP_INT("onesided", 1)};
    c.attrs = attrs;
    c.attr_count = 1;
    c.in_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "onesided");
}

/* ---- transforms of real numbers ---- */

DEVICE_TEST(real_spectrum_refuses_what_does_not_fit) {
    const float x[24] = {0};
    mp_attr attrs[] = {OP_INT("signal_ndim", 1), OP_INT("onesided", 0), OP_INT("normalized", 0)};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "Rfft",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 6, 4)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "onesided 0 and normalized 0");
    attrs[1].i = 1;
    attrs[2].i = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "onesided 1 and normalized 1");
    attrs[2].i = 0;
    attrs[0].i = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "signal_ndim is 4");
    attrs[0].i = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "X of shape 6x4; 3 dimensions");
    c.name = "Irfft";
    attrs[0].i = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2 for real and imaginary parts");
    c.in[0] = op_f32(x, 4, 0, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "X of shape 4x0x2");
}
