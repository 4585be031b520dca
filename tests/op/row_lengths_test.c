/* row_lengths_test.c - softmax, normalisation and reductions of rows and columns of any number,
 * wherever they begin: kept by lanes of a warp or a block, too long for that, with the ends of rows
 * beside 16 bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Many short rows, for which a device has lanes enough, and few long ones. */
typedef struct extent {
    int64_t rows, columns;
} extent;

static const extent extents[] = {
    {3, 127},   {40, 128},  {3, 129},  {2, 1023},  {40, 1023}, {40, 1024}, {40, 1025},
    {17, 2050}, {17, 4096}, {2, 4096}, {17, 8190}, {2, 16384}, {2, 16385}, {1, 70000},
    {61, 96},   {33, 192},  {17, 384}, {5, 768},   {9, 12288}, {9000, 49}, {700, 200}};

enum { SHORT_MOST = 70, EXTENTS = SHORT_MOST + (int)MP_COUNT_OF(extents) };

static extent extent_of(int i) {
    return i < SHORT_MOST ? (extent){.rows = 37, .columns = i + 1} : extents[i - SHORT_MOST];
}

/* Every row begins at an element of its own; with `skewed` the tensors do not begin at 16 bytes. */
static op_case case_of(const char *name, int version, mp_dtype type, bool skewed) {
    return (op_case){.name = name,
                     .version = version,
                     .align = skewed ? 1 : 16,
                     .skew = skewed ? (uint32_t)mp_dtype_size(type) : 0,
                     .out_count = 1};
}

/* Within `bound` of `want` itself, or of the smallest step of the type. */
static void check_near(mp_dtype type, double got, double want, double bound, const char *what,
                       int64_t i) {
    const double step = type == MP_F16 ? 6e-8 : 1e-37;
    if (isnan(want) ? !isnan(got)
                    : !(got == want || fabs(got - want) <= bound * fabs(want) + step)) {
        test_fail(__FILE__, __LINE__, "%s[%lld] is %.9g, not %.9g", what, (long long)i, got, want);
    }
}

/* ---- softmax ---- */

static void check_softmax(mp_device *device, mp_dtype type, bool logarithm, bool skewed, extent e,
                          const void *x) {
    const mp_attr attrs[] = {OP_INT("axis", 1)};
    op_case c = case_of(logarithm ? "LogSoftmax" : "Softmax", 13, type, skewed);
    c.attrs = attrs;
    c.attr_count = 1;
    c.in[0] = OP_TENSOR(type, x, e.rows, e.columns);
    c.in_count = 1;
    op_run(device, &c);
    /* Of f64 the sum here is off by some 2^-53 for each of 70000 additions. */
    const double bound = op_precision(type) + (type == MP_F64 ? 1e-11 : 4e-6);
    for (int64_t r = 0; r < e.rows; r++) {
        double most = -(double)INFINITY, sum = 0;
        for (int64_t i = r * e.columns; i < (r + 1) * e.columns; i++) {
            most = fmax(most, op_real(type, x, i));
        }
        for (int64_t i = r * e.columns; i < (r + 1) * e.columns; i++) {
            sum += exp(op_real(type, x, i) - most);
        }
        for (int64_t i = r * e.columns; i < (r + 1) * e.columns; i++) {
            const double off = op_real(type, x, i) - most, got = op_real(type, c.out[0].data, i);
            if (logarithm) {
                op_check_close(got, off - log(sum), bound, c.name, i);
            } else {
                check_near(type, got, exp(off) / sum, bound, c.name, i);
            }
        }
    }
    op_close(device, &c);
}

/* Values that differ by row, some of them -inf, and the largest at another place in each row. */
static void *softmax_values(mp_dtype type, extent e) {
    void *x = op_numbers(type, 31, e.rows * e.columns);
    for (int64_t r = 0; r < e.rows; r++) {
        for (int64_t k = 0; k < e.columns; k++) {
            const int64_t i = r * e.columns + k;
            const double far = k == r * 7 % e.columns ? 6 : k % 11 == 5 ? -(double)INFINITY : 0;
            op_store_real(type, x, i, op_real(type, x, i) + far);
        }
    }
    return x;
}

DEVICE_TEST(row_lengths_softmax) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16, MP_F64};
    for (int k = 0; k < EXTENTS; k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            const extent e = extent_of(k);
            void *x = softmax_values(types[t], e);
            check_softmax(device, types[t], (k + (int)t) % 3 == 0, k % 2 == 0, e, x);
            check_softmax(device, types[t], (k + (int)t) % 3 == 1, k % 2 == 1, e, x);
            free(x);
        }
    }
}

/* A row of -inf, or with a NaN or +inf, has no meaning; its neighbours do. */
DEVICE_TEST(row_lengths_softmax_without_meaning) {
    const int64_t lengths[] = {1, 5, 64, 129, 1024, 1030, 20000};
    const double odd[] = {-(double)INFINITY, (double)NAN, (double)INFINITY};
    for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
        for (int k = 0; k < 3; k++) {
            const extent e = {.rows = 3, .columns = lengths[n]};
            void *x = op_numbers(MP_F32, 32, e.rows * e.columns);
            for (int64_t i = 0; i < e.columns; i++) {
                op_store_real(MP_F32, x, e.columns + i, k == 0 ? odd[0] : 1);
            }
            op_store_real(MP_F32, x, e.columns + e.columns / 2, odd[k]);
            check_softmax(device, MP_F32, false, n % 2 == 0, e, x);
            check_softmax(device, MP_F32, true, n % 2 == 1, e, x);
            free(x);
        }
    }
}

/* ---- normalisation ---- */

/* The mean is `offset`, the deviation small beside it. */
static void check_norm(mp_device *device, mp_dtype type, bool skewed, extent e, double offset) {
    const double epsilon = 1e-4;
    void *x = op_numbers(type, 33, e.rows * e.columns), *scale = op_numbers(type, 34, e.columns),
         *bias = op_numbers(type, 35, e.columns);
    for (int64_t i = 0; i < e.rows * e.columns; i++) {
        op_store_real(type, x, i, op_real(type, x, i) + offset);
    }
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_FLOAT("epsilon", (float)epsilon)};
    op_case c = case_of("LayerNormalization", 17, type, skewed);
    c.attrs = attrs;
    c.attr_count = 2;
    c.in[0] = OP_TENSOR(type, x, e.rows, e.columns);
    c.in[1] = OP_TENSOR(type, scale, e.columns);
    c.in[2] = OP_TENSOR(type, bias, e.columns);
    c.in_count = 3;
    op_run(device, &c);
    for (int64_t r = 0; r < e.rows; r++) {
        double mean = 0, variance = 0;
        op_moments(type, x, r * e.columns, e.columns, &mean, &variance);
        for (int64_t k = 0; k < e.columns; k++) {
            const int64_t i = r * e.columns + k;
            const double normal = (op_real(type, x, i) - mean) / sqrt(variance + epsilon);
            const double want = normal * op_real(type, scale, k) + op_real(type, bias, k);
            op_check_close(op_real(type, c.out[0].data, i), want, op_precision(type) + 2e-5,
                           "normal", i);
        }
    }
    op_close(device, &c);
    free(x);
    free(scale);
    free(bias);
}

DEVICE_TEST(row_lengths_norm) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16, MP_F64};
    for (int k = 0; k < EXTENTS; k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            check_norm(device, types[t], (k + (int)t) % 2 == 0, extent_of(k), 0);
        }
        check_norm(device, MP_F32, k % 2 == 0, extent_of(k), 1000);
    }
}

/* ---- reductions ---- */

typedef struct reduction {
    const char *name;
    int version;
    bool integers;
} reduction;

static const reduction reductions[] = {
    {"ReduceSum", 13, true}, {"ReduceMean", 18, true}, {"ReduceMax", 20, true},
    {"ReduceL2", 18, true},  {"ReduceL1", 18, true},   {"ReduceLogSumExp", 18, false},
};

static double reduced(int which, double sum, double value) {
    switch (which) {
    case 2:
        return fmax(sum, value);
    case 3:
        return sum + value * value;
    case 4:
        return sum + fabs(value);
    case 5:
        return sum + exp(value);
    default:
        return sum + value;
    }
}

static double finished(int which, mp_dtype type, double sum, double count) {
    const double made = which == 1   ? sum / count
                        : which == 3 ? sqrt(sum)
                        : which == 5 ? log(sum)
                                     : sum;
    return op_is_float(type) ? made : trunc(made);
}

/* x of [outer][count][inner] over the middle, or over the outer and the inner dimension. What is
 * added is exact in double; float may lose a little of each addition, in its own order. */
static void check_reduce(mp_device *device, int which, mp_dtype type, bool skewed,
                         const int64_t *dims, bool middle) {
    const int64_t outer = dims[0], count = dims[1], inner = dims[2];
    const int64_t all = outer * count * inner, outputs = middle ? outer * inner : count;
    void *x = op_numbers(type, 36, all);
    double *sum = calloc((size_t)outputs, sizeof *sum),
           *size = calloc((size_t)outputs, sizeof *size);
    const int64_t axes[] = {middle ? 1 : 0, 2};
    const mp_attr attrs[] = {OP_INT("keepdims", 0)};
    op_case c = case_of(reductions[which].name, reductions[which].version, type, skewed);
    c.attrs = attrs;
    c.attr_count = 1;
    c.in[0] = OP_TENSOR(type, x, outer, count, inner);
    c.in[1] = op_i64(axes, middle ? 1 : 2);
    c.in_count = 2;
    op_run(device, &c);
    for (int64_t o = 0; o < outputs; o++) {
        sum[o] = which == 2 ? -(double)INFINITY : 0;
    }
    for (int64_t i = 0; i < all; i++) {
        const int64_t o = middle ? i / (count * inner) * inner + i % inner : i / inner % count;
        const double value = op_real(type, x, i);
        sum[o] = reduced(which, sum[o], value);
        size[o] += fabs(value);
    }
    const double each = (double)(middle ? count : outer * inner);
    for (int64_t o = 0; o < outputs; o++) {
        const double want = finished(which, type, sum[o], each);
        const double loss = which == 1 ? size[o] / each : size[o];
        const double bound = op_is_float(type) ? op_precision(type) * fabs(want) + 1e-6 * loss : 0;
        const double got = op_real(type, c.out[0].data, o);
        if (!(fabs(got - op_rounded(type, want)) <= bound)) {
            test_fail(__FILE__, __LINE__, "%s of %s: [%lld] is %.9g, not %.9g", c.name,
                      mp_dtype_name(type), (long long)o, got, want);
        }
    }
    op_close(device, &c);
    free(x);
    free(sum);
    free(size);
}

static void check_all(mp_device *device, int turn, const int64_t *dims, bool middle) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_I32, MP_BF16, MP_F64, MP_I64};
    for (int which = 0; which < (int)MP_COUNT_OF(reductions); which++) {
        const mp_dtype type = types[(turn + which) % (int)MP_COUNT_OF(types)];
        if (op_is_float(type) || reductions[which].integers) {
            check_reduce(device, which, type, (turn + which) % 4 == 0, dims, middle);
        }
    }
}

DEVICE_TEST(row_lengths_reduce_rows) {
    for (int k = 0; k < EXTENTS; k++) {
        const extent e = extent_of(k);
        check_all(device, k, (int64_t[]){e.rows, e.columns, 1}, true);
    }
}

DEVICE_TEST(row_lengths_reduce_columns) {
    const int64_t counts[] = {1, 7, 70, 300};
    const int64_t inner[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65, 127, 128, 129, 500, 1024, 1027};
    for (size_t i = 0; i < MP_COUNT_OF(inner); i++) {
        for (size_t n = 0; n < MP_COUNT_OF(counts); n++) {
            check_all(device, (int)(i + n),
                      (int64_t[]){1 + (int64_t)(i + n) % 3, counts[n], inner[i]}, true);
        }
    }
    check_all(device, 0, (int64_t[]){1, 30011, 3}, true);
    check_all(device, 1, (int64_t[]){2, 4099, 64}, true);
}

/* Sums and means of images with channels last: pixels, channels; of the last ones in pieces. */
DEVICE_TEST(row_lengths_reduce_pixels) {
    const int64_t shapes[][3] = {{1, 49, 960},   {2, 196, 120}, {3, 784, 72},
                                 {40, 49, 1280}, {1, 400, 16},  {9, 1, 24},
                                 {1, 65, 2048},  {2, 3137, 24}, {1, 12544, 32}};
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(shapes) * MP_COUNT_OF(types); i++) {
        const int64_t *dims = shapes[i / MP_COUNT_OF(types)];
        check_reduce(device, 0, types[i % MP_COUNT_OF(types)], false, dims, true);
        check_reduce(device, 1, types[i % MP_COUNT_OF(types)], false, dims, true);
    }
}

/* Runs of neighbours with others in between, short and long. */
DEVICE_TEST(row_lengths_reduce_both_sides) {
    const int64_t shapes[][3] = {{2, 3, 5},   {5, 3, 64},   {9, 4, 65},   {40, 2, 100},
                                 {3, 7, 999}, {2, 1, 9000}, {300, 5, 70}, {70, 40, 3}};
    for (size_t i = 0; i < MP_COUNT_OF(shapes); i++) {
        for (int turn = 0; turn < 6; turn++) {
            check_all(device, turn, shapes[i], false);
        }
    }
}

DEVICE_TEST(row_lengths_reduce_every_type) {
    for (int which = 0; which < (int)MP_COUNT_OF(reductions); which++) {
        const mp_dtypes takes = op_types_of(reductions[which].name, reductions[which].version);
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            if ((takes & MP_BIT(op_types[t])) != 0) {
                check_reduce(device, which, op_types[t], false, (int64_t[]){3, 9, 48}, true);
                check_reduce(device, which, op_types[t], true, (int64_t[]){3, 9, 50}, true);
                check_reduce(device, which, op_types[t], true, (int64_t[]){5, 100, 1}, true);
            }
        }
    }
}
