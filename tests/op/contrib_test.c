/* contrib_test.c - small operators of com.microsoft where shapes, alignment or values that only a
 * broken model has can go wrong: products of complex numbers, windows, n-grams, paths.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static op_case case_of(const char *name) {
    return (op_case){.domain = "com.microsoft", .name = name, .version = 1, .out_count = 1};
}

/* ---- complex numbers ---- */

static void check_complex(mp_device *device, const char *name, double sign, int64_t columns,
                          int32_t align) {
    enum { ROWS = 5 };
    const int64_t count = ROWS * columns;
    float *x = op_numbers(MP_F32, 1, 2 * count), *y = op_numbers(MP_F32, 2, 2 * columns);
    op_case c = case_of(name);
    c.align = align;
    c.skew = align == 1 ? 4 : 0;
    c.in[0] = op_f32(x, ROWS, columns, 2);
    c.in[1] = op_f32(y, columns, 2);
    c.in_count = 2;
    op_run(device, &c);
    const float *out = c.out[0].data;
    for (int64_t i = 0; i < count; i++) {
        const double a = (double)x[2 * i], b = (double)x[2 * i + 1];
        const double p = (double)y[i % columns * 2], q = sign * (double)y[i % columns * 2 + 1];
        op_check_close((double)out[2 * i], a * p - b * q, 1e-6, "real part", i);
        op_check_close((double)out[2 * i + 1], a * q + b * p, 1e-6, "imaginary part", i);
    }
    op_close(device, &c);
    free(x);
    free(y);
}

DEVICE_TEST(complex_products_of_rows) {
    const int64_t columns[] = {1, 3, 4, 33, 64};
    for (int k = 0; k < 5; k++) {
        for (int32_t align = 1; align <= 16; align += 15) {
            check_complex(device, "ComplexMul", 1, columns[k], align);
            check_complex(device, "ComplexMulConj", -1, columns[k], align);
        }
    }
}

/* ---- windows ---- */

static void check_unfold(mp_device *device, mp_dtype type, int64_t size, int64_t step,
                         int32_t align) {
    enum { A = 3, B = 37, C = 5 };
    const int64_t windows = (B - size) / step + 1;
    void *x = op_numbers(type, 3, (int64_t)A * B * C);
    const mp_attr attrs[] = {OP_INT("dim", -2), OP_INT("size", size), OP_INT("step", step)};
    op_case c = case_of("UnfoldTensor");
    c.attrs = attrs;
    c.attr_count = 3;
    c.align = align;
    c.skew = align == 1 ? (uint32_t)mp_dtype_size(type) : 0;
    c.in[0] = OP_TENSOR(type, x, A, B, C);
    c.in_count = 1;
    op_run(device, &c);
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), A * windows * C * size);
    for (int64_t i = 0; i < A * windows * C * size; i++) {
        const int64_t k = i % size, inner = i / size % C, window = i / size / C % windows;
        const int64_t from = (i / size / C / windows * B + window * step + k) * C + inner;
        CHECK_EQ_INT(op_whole(type, c.out[0].data, i), op_whole(type, x, from));
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(unfold_windows_that_overlap_and_that_leave_gaps) {
    const int64_t sizes[] = {1, 4, 8, 37}, steps[] = {1, 4, 8, INT64_MAX / 2};
    for (int s = 0; s < 4; s++) {
        for (int t = 0; t < 4; t++) {
            check_unfold(device, MP_I32, sizes[s], steps[t], 16);
            check_unfold(device, MP_U8, sizes[s], steps[t], 1);
        }
    }
}

DEVICE_TEST(unfold_refuses_what_does_not_fit) {
    const float x[24] = {0};
    mp_plan *plan = NULL;
    mp_attr attrs[] = {OP_INT("dim", 1), OP_INT("size", 5), OP_INT("step", 1)};
    op_case c = case_of("UnfoldTensor");
    c.attrs = attrs;
    c.attr_count = 3;
    c.in[0] = op_f32(x, 6, 4);
    c.in_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "size 5 and step 1 for a dimension");
    attrs[1].i = 2;
    attrs[2].i = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "size 2 and step 0");
    attrs[0].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "dim");
    c.in[0] = op_tensor_of(MP_F32, x, 0, NULL);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "an input of rank 0");
}

/* ---- n-grams ---- */

DEVICE_TEST(ngrams_with_tokens_beyond_the_vocabulary) {
    enum { LENGTH = 6, WORDS = 4 };
    const int64_t ids[2][LENGTH] = {{1, 9, 1, -3, 2, 1}, {INT64_MAX, 1, 3, 1, INT64_MIN, 1}};
    float scores[2][WORDS] = {{1, 2, 3, 4}, {5, 6, 7, 8}},
          want[2][WORDS] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    want[1][3] = -INFINITY; /* 1 was followed by 3; else by what has no score */
    mp_attr size = OP_INT("ngram_size", 2);
    mp_plan *plan = NULL;
    op_case c = case_of("NGramRepeatBlock");
    c.attrs = &size;
    c.attr_count = 1;
    c.in[0] = op_i64(ids, 2, LENGTH);
    c.in[1] = op_f32(scores, 2, WORDS);
    c.in_count = 2;
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
    size.i = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "ngram_size is 0");
    c.in[1] = op_f32(scores, 4, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "scores of shape 4x2");
}

/* ---- paths ---- */

DEVICE_TEST(time_warp_refuses_what_is_no_matrix) {
    const float x[12] = {0};
    const int64_t found = 8;
    mp_plan *plan = NULL;
    op_case c = case_of("DynamicTimeWarping");
    c.in[0] = op_f32(x, 2, 2, 3);
    c.in_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input of shape 2x2x3");
    c.in[0] = op_f32(x, 3, 4);
    CHECK_FAILS(op_finish(device, &c, &found, &plan), DEVICE, "a path of 8 elements");
}
