/* host_math_test.c - matrix products and convolutions of every device against plain loops.
 *
 * The reference computes in double from the stored values, so that only the device's own rounding
 * is tolerated.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/half.h"
#include "device/host/host_device.h"
#include "device/host/math/host_blas.h"
#include "device/math.h"

#include <math.h>
#include <stdlib.h>

/* ---- values of any type ---- */

static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};

static double read_value(mp_dtype type, const void *data, int64_t index) {
    switch (type) {
    case MP_F32:
        return (double)((const float *)data)[index];
    case MP_F64:
        return ((const double *)data)[index];
    case MP_F16:
        return (double)mp_from_f16(((const uint16_t *)data)[index]);
    default:
        return (double)mp_from_bf16(((const uint16_t *)data)[index]);
    }
}

static void write_value(mp_dtype type, void *data, int64_t index, double value) {
    switch (type) {
    case MP_F32:
        ((float *)data)[index] = (float)value;
        break;
    case MP_F64:
        ((double *)data)[index] = value;
        break;
    case MP_F16:
        ((uint16_t *)data)[index] = mp_to_f16((float)value);
        break;
    default:
        ((uint16_t *)data)[index] = mp_to_bf16((float)value);
    }
}

static double tolerance(mp_dtype type) {
    return type == MP_F64 ? 1e-13 : type == MP_F32 ? 2e-6 : type == MP_F16 ? 2e-3 : 1e-2;
}

typedef struct operand { /* the same values on both sides */
    mp_dtype type;
    int64_t count;
    void *here;
    mp_addr there;
} operand;

static size_t bytes_of(const operand *o) {
    return (size_t)o->count * mp_dtype_size(o->type);
}

/* Values of about one, the same for the same state. */
static operand make(mp_device *device, mp_dtype type, int64_t count, uint64_t *random) {
    operand o = {.type = type, .count = count > 0 ? count : 1};
    o.here = malloc(bytes_of(&o));
    CHECK(o.here != NULL);
    for (int64_t i = 0; i < o.count; i++) {
        const double unit = (double)(test_random(random) >> 11) * 0x1p-53;
        write_value(type, o.here, i, unit * 2 - 1);
    }
    CHECK_OK(device->ops->alloc(device, bytes_of(&o), &o.there));
    CHECK_OK(device->ops->copy(device, NULL, o.there, (mp_addr)o.here, bytes_of(&o)));
    return o;
}

static void drop(mp_device *device, operand *o) {
    device->ops->free(device, o->there, bytes_of(o));
    free(o->here);
}

static double at(const operand *o, int64_t index) {
    return read_value(o->type, o->here, index);
}

static void run_math(mp_device *device, mp_math *math, const mp_addr *operands) {
    mp_stream *stream = NULL;
    mp_addr workspace = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    const size_t size = device->ops->math_workspace(device, math);
    if (size > 0) {
        CHECK_OK(device->ops->alloc(device, size, &workspace));
    }
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    if (size > 0) {
        device->ops->free(device, workspace, size);
    }
    device->ops->math_release(device, math);
    device->ops->stream_destroy(device, stream);
}

/* What the device wrote, into the host's side. */
static void fetch(mp_device *device, operand *o) {
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)o->here, o->there, bytes_of(o)));
}

static void check_near(double found, double expected, double scale, mp_dtype type) {
    if (!(fabs(found - expected) <= tolerance(type) * (scale + fabs(expected)))) {
        test_fail(__FILE__, __LINE__, "%s: %.17g instead of %.17g", mp_dtype_name(type), found,
                  expected);
    }
}

/* ---- matrix products ---- */

static double gemm_expected(const mp_gemm *g, const operand *o, int64_t batch, int64_t i,
                            int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < g->k; k++) {
        const int64_t a = batch * g->stride_a + (g->trans_a ? k * g->lda + i : i * g->lda + k);
        const int64_t b = batch * g->stride_b + (g->trans_b ? j * g->ldb + k : k * g->ldb + j);
        sum += at(&o[MP_GEMM_A], a) * at(&o[MP_GEMM_B], b);
    }
    sum *= (double)g->alpha;
    if (g->beta != 0) {
        sum += (double)g->beta * at(&o[MP_GEMM_D], batch * g->stride_c + i * g->ldc + j);
    }
    return sum + (g->bias ? at(&o[MP_GEMM_BIAS], j) : 0);
}

static void check_gemm(mp_device *device, mp_gemm g) {
    operand o[MP_GEMM_OPERANDS];
    uint64_t random = 7;
    const int64_t rows_a = g.trans_a ? g.k : g.m, rows_b = g.trans_b ? g.n : g.k;
    g.align = 2;
    o[MP_GEMM_A] = make(device, g.type, (g.batch - 1) * g.stride_a + rows_a * g.lda, &random);
    o[MP_GEMM_B] = make(device, g.type, (g.batch - 1) * g.stride_b + rows_b * g.ldb, &random);
    o[MP_GEMM_C] = make(device, g.type, (g.batch - 1) * g.stride_c + g.m * g.ldc, &random);
    o[MP_GEMM_D] = make(device, g.type, o[MP_GEMM_C].count, &random);
    o[MP_GEMM_BIAS] = make(device, g.type, g.n, &random);
    mp_addr addresses[MP_GEMM_OPERANDS];
    for (size_t i = 0; i < MP_GEMM_OPERANDS; i++) {
        addresses[i] = o[i].there;
    }
    mp_math *math = NULL;
    CHECK_OK(device->ops->gemm_prepare(device, &g, &math));
    run_math(device, math, addresses);
    const double untouched = g.ldc > g.n ? at(&o[MP_GEMM_C], g.n) : 0;
    fetch(device, &o[MP_GEMM_C]);
    for (int64_t index = 0; index < g.batch * g.m * g.n; index++) {
        const int64_t batch = index / (g.m * g.n), i = index / g.n % g.m, j = index % g.n;
        check_near(at(&o[MP_GEMM_C], batch * g.stride_c + i * g.ldc + j),
                   gemm_expected(&g, o, batch, i, j), sqrt((double)g.k + 1), g.type);
    }
    if (g.ldc > g.n) {
        CHECK(at(&o[MP_GEMM_C], g.n) == untouched); /* what lies between rows is not written */
    }
    for (size_t i = 0; i < MP_GEMM_OPERANDS; i++) {
        drop(device, &o[i]);
    }
}

/* Rows without gaps, batches one behind the other. */
static mp_gemm dense(mp_dtype type, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b) {
    return (mp_gemm){.type = type,
                     .trans_a = trans_a,
                     .trans_b = trans_b,
                     .m = m,
                     .n = n,
                     .k = k,
                     .lda = trans_a ? m
                            : k > 0 ? k
                                    : 1,
                     .ldb = trans_b ? (k > 0 ? k : 1) : n,
                     .ldc = n,
                     .batch = 1,
                     .alpha = 1.0F};
}

DEVICE_TEST(products_of_each_type_and_side) {
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 40, 17}, {33, 1, 9}, {5, 7, 3}, {64, 50, 70}};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t s = 0; s < MP_COUNT_OF(sizes); s++) {
            for (int sides = 0; sides < 4; sides++) {
                check_gemm(device, dense(types[t], sizes[s][0], sizes[s][1], sizes[s][2],
                                         (sides & 1) != 0, (sides & 2) != 0));
            }
        }
    }
}

DEVICE_TEST(products_with_scales_and_bias) {
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        mp_gemm g = dense(types[t], 9, 24, 16, false, true);
        g.alpha = 0.5F;
        g.beta = -2.0F;
        check_gemm(device, g);
        g.bias = true;
        check_gemm(device, g);
        g.beta = 0;
        g.ldc = 31;
        g.lda = 20;
        g.ldb = 18;
        check_gemm(device, g);
    }
}

/* Twice, so that the second one is what was found for the first. */
DEVICE_TEST(products_with_the_fastest_algorithm) {
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (int times = 0; times < 2; times++) {
            mp_gemm g = dense(types[t], 33, 40, 48, times == 0, true);
            g.tune = MP_TUNE_MEASURE;
            check_gemm(device, g);
            g.tune_ms = 1;
            g.batch = 3;
            g.stride_a = 33 * 48;
            g.stride_b = 0;
            g.stride_c = 33 * 40;
            check_gemm(device, g);
            g.bias = true;
            g.beta = 1.0F;
            check_gemm(device, g);
            g.tune = MP_TUNE_USE;
            check_gemm(device, g);
        }
    }
}

DEVICE_TEST(products_over_nothing) {
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        mp_gemm g = dense(types[t], 4, 6, 0, false, false);
        check_gemm(device, g);
        g.beta = 3.0F;
        g.bias = true;
        check_gemm(device, g);
    }
}

DEVICE_TEST(products_in_batches) {
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        mp_gemm g = dense(types[t], 6, 10, 12, false, false);
        g.batch = 5;
        g.stride_a = 6 * 12 + 3;
        g.stride_b = 0; /* one B for all */
        g.stride_c = 6 * 10;
        check_gemm(device, g);
        g.stride_a = 0;
        g.stride_b = 12 * 10;
        g.beta = 1.0F;
        check_gemm(device, g);
    }
}

TEST(large_products_are_cut_into_tiles) {
    mp_device *device = NULL;
    const mp_host_config config = {.memory_bytes = (size_t)1 << 30};
    CHECK_OK(mp__host_device_create(&config, &device));
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        check_gemm(device, dense(types[t], 150, 300, 600, t % 2 != 0, t / 2 != 0));
        check_gemm(device, dense(types[t], 300, 70, 65, false, true));
    }
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

static void check_loops(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
    uint64_t random = 3;
    double a[2048], b[2048], c[2048], expected[2048];
    CHECK(m * k <= 2048 && k * n <= 2048 && m * n <= 2048);
    for (size_t i = 0; i < 2048; i++) {
        a[i] = (double)(test_random(&random) % 100);
        b[i] = (double)(test_random(&random) % 100);
        c[i] = expected[i] = (double)(test_random(&random) % 100);
    }
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++) {
            sum += a[trans_a ? p * m + i / n : i / n * k + p] *
                   b[trans_b ? i % n * k + p : p * n + i % n];
        }
        expected[i] = 2 * sum + 3 * expected[i];
    }
    mp__host_product_loops_f64(&(host_product){.trans_a = trans_a,
                                               .trans_b = trans_b,
                                               .m = m,
                                               .n = n,
                                               .k = k,
                                               .lda = trans_a ? m : k,
                                               .ldb = trans_b ? k : n,
                                               .ldc = n,
                                               .a = a,
                                               .b = b,
                                               .c = c,
                                               .alpha = 2.0F,
                                               .beta = 3.0F});
    for (int64_t i = 0; i < m * n; i++) {
        CHECK(c[i] == expected[i]); /* whole numbers: nothing is rounded */
    }
}

TEST(own_loops_are_right) {
    for (int sides = 0; sides < 4; sides++) {
        check_loops((sides & 1) != 0, (sides & 2) != 0, 5, 9, 7);
        check_loops((sides & 1) != 0, (sides & 2) != 0, 1, 1, 600);
        check_loops((sides & 1) != 0, (sides & 2) != 0, 40, 50, 1);
        check_loops((sides & 1) != 0, (sides & 2) != 0, 4, 8, 256);
    }
}

/* ---- convolutions ---- */

static int64_t product3(const int64_t *values, int32_t count) {
    int64_t product = 1;
    for (int32_t i = 0; i < count; i++) {
        product *= values[i];
    }
    return product;
}

/* Splits a flat index into positions, last dimension fastest. */
static void split(int64_t index, const int64_t *sizes, int32_t count, int64_t *out) {
    for (int32_t i = count; i-- > 0;) {
        out[i] = index % sizes[i];
        index /= sizes[i];
    }
}

/* Where an element lies in [outer][channels][points], or with channels last. */
static int64_t spot(const mp_conv *c, int64_t outer, int64_t channels, int64_t points,
                    int64_t channel, int64_t point) {
    return c->channels_last ? (outer * points + point) * channels + channel
                            : (outer * channels + channel) * points + point;
}

/* Adds x * w for every pair of an input point and a tap to the output point they belong to. */
static void conv_expected(const mp_conv *c, const operand *o, double *sums) {
    const int64_t in_points = product3(c->in, c->spatial), taps = product3(c->kernel, c->spatial);
    const int64_t out_points = product3(c->out, c->spatial);
    const int64_t group_in = c->in_channels / c->groups, group_out = c->out_channels / c->groups;
    for (int64_t i = 0; i < c->batch * c->out_channels * out_points; i++) {
        const int64_t channel = (c->channels_last ? i : i / out_points) % c->out_channels;
        sums[i] = c->bias ? at(&o[MP_CONV_BIAS], channel) : 0;
    }
    /* `inner` runs over the side that is not strided: the input, or transposed the output. */
    const int64_t *strided = c->transposed ? c->in : c->out,
                  *inner = c->transposed ? c->out : c->in;
    const int64_t strided_points = c->transposed ? in_points : out_points;
    for (int64_t flat = 0; flat < strided_points * taps; flat++) {
        int64_t position[3], tap[3], other = 0;
        bool inside = true;
        split(flat / taps, strided, c->spatial, position);
        split(flat % taps, c->kernel, c->spatial, tap);
        for (int32_t d = 0; d < c->spatial; d++) {
            const int64_t where =
                position[d] * c->stride[d] - c->pad_begin[d] + tap[d] * c->dilation[d];
            inside = inside && where >= 0 && where < inner[d];
            other = other * inner[d] + where;
        }
        const int64_t x_point = c->transposed ? flat / taps : other;
        const int64_t y_point = c->transposed ? other : flat / taps;
        for (int64_t pair = 0; inside && pair < c->batch * c->out_channels * group_in; pair++) {
            const int64_t batch = pair / (c->out_channels * group_in);
            const int64_t oc = pair / group_in % c->out_channels, ic = pair % group_in;
            const int64_t channel = oc / group_out * group_in + ic;
            const int64_t weight =
                c->transposed ? spot(c, channel, group_out, taps, oc % group_out, flat % taps)
                              : spot(c, oc, group_in, taps, ic, flat % taps);
            sums[spot(c, batch, c->out_channels, out_points, oc, y_point)] +=
                at(&o[MP_CONV_X], spot(c, batch, c->in_channels, in_points, channel, x_point)) *
                at(&o[MP_CONV_W], weight);
        }
    }
}

/* Fills in the output sizes. */
static void derive_out(mp_conv *c) {
    for (int32_t d = 0; d < c->spatial; d++) {
        const int64_t reach = c->dilation[d] * (c->kernel[d] - 1) + 1;
        const int64_t pads = c->pad_begin[d] + c->pad_end[d];
        c->out[d] = c->transposed ? (c->in[d] - 1) * c->stride[d] + reach - pads
                                  : (c->in[d] + pads - reach) / c->stride[d] + 1;
    }
}

static void check_conv(mp_device *device, mp_conv c) {
    uint64_t random = 11;
    operand o[MP_CONV_BIAS + 1];
    derive_out(&c);
    const int64_t out_count = c.batch * c.out_channels * product3(c.out, c.spatial);
    o[MP_CONV_X] =
        make(device, c.type, c.batch * c.in_channels * product3(c.in, c.spatial), &random);
    o[MP_CONV_W] =
        make(device, c.type,
             c.in_channels * c.out_channels / c.groups * product3(c.kernel, c.spatial), &random);
    o[MP_CONV_Y] = make(device, c.type, out_count, &random);
    o[MP_CONV_BIAS] = make(device, c.type, c.out_channels, &random);
    mp_addr addresses[MP_CONV_OPERANDS] = {0};
    for (size_t i = 0; i <= MP_CONV_BIAS; i++) {
        addresses[i] = o[i].there;
    }
    mp_math *math = NULL;
    bool whole = true;
    const mp_status prepared = device->ops->conv_prepare(device, &c, &math, &whole);
    if (c.channels_last && prepared == MP_UNSUPPORTED && device->info.kind == MP_DEVICE_CUDA) {
        return; /* as the contract allows; cuda_math_test.c says what a GPU must do */
    }
    CHECK_OK(prepared);
    run_math(device, math, addresses);
    double *expected = malloc((size_t)out_count * sizeof *expected);
    CHECK(expected != NULL);
    conv_expected(&c, o, expected);
    fetch(device, &o[MP_CONV_Y]);
    const int64_t depth = c.in_channels / c.groups * product3(c.kernel, c.spatial);
    for (int64_t i = 0; i < out_count; i++) {
        check_near(at(&o[MP_CONV_Y], i), expected[i], sqrt((double)depth + 1), c.type);
    }
    free(expected);
    for (size_t i = 0; i <= MP_CONV_BIAS; i++) {
        drop(device, &o[i]);
    }
}

static const mp_conv conv_cases[] = {
    /* one dimension, padding that differs at the two ends */
    {.spatial = 1,
     .batch = 2,
     .in_channels = 3,
     .out_channels = 4,
     .groups = 1,
     .in = {19},
     .kernel = {4},
     .stride = {3},
     .dilation = {2},
     .pad_begin = {1},
     .pad_end = {3}},
    /* the common ones */
    {.spatial = 2,
     .batch = 1,
     .in_channels = 5,
     .out_channels = 7,
     .groups = 1,
     .bias = true,
     .in = {12, 9},
     .kernel = {3, 3},
     .stride = {1, 1},
     .dilation = {1, 1},
     .pad_begin = {1, 1},
     .pad_end = {1, 1}},
    {.spatial = 2,
     .batch = 2,
     .in_channels = 6,
     .out_channels = 8,
     .groups = 2,
     .bias = true,
     .in = {10, 13},
     .kernel = {2, 3},
     .stride = {2, 1},
     .dilation = {1, 2},
     .pad_begin = {0, 3},
     .pad_end = {1, 0}},
    /* pointwise */
    {.spatial = 2,
     .batch = 2,
     .in_channels = 8,
     .out_channels = 5,
     .groups = 1,
     .in = {7, 11},
     .kernel = {1, 1},
     .stride = {1, 1},
     .dilation = {1, 1}},
    {.spatial = 2,
     .batch = 1,
     .in_channels = 8,
     .out_channels = 5,
     .groups = 1,
     .bias = true,
     .in = {7, 11},
     .kernel = {1, 1},
     .stride = {2, 2},
     .dilation = {1, 1}},
    /* one input channel a group, with one and with two outputs each */
    {.spatial = 2,
     .batch = 2,
     .in_channels = 4,
     .out_channels = 4,
     .groups = 4,
     .bias = true,
     .in = {9, 40},
     .kernel = {5, 3},
     .stride = {1, 1},
     .dilation = {1, 1},
     .pad_begin = {2, 1},
     .pad_end = {2, 1}},
    {.spatial = 2,
     .batch = 1,
     .in_channels = 3,
     .out_channels = 6,
     .groups = 3,
     .in = {9, 8},
     .kernel = {3, 3},
     .stride = {2, 2},
     .dilation = {2, 1},
     .pad_begin = {1, 0},
     .pad_end = {2, 1}},
    /* padding larger than the kernel; an image of one point */
    {.spatial = 2,
     .batch = 1,
     .in_channels = 2,
     .out_channels = 2,
     .groups = 1,
     .in = {3, 3},
     .kernel = {2, 2},
     .stride = {1, 2},
     .dilation = {1, 1},
     .pad_begin = {4, 3},
     .pad_end = {3, 5}},
    {.spatial = 2,
     .batch = 1,
     .in_channels = 40,
     .out_channels = 70,
     .groups = 1,
     .bias = true,
     .in = {1, 1},
     .kernel = {1, 1},
     .stride = {1, 1},
     .dilation = {1, 1}},
    /* three dimensions */
    {.spatial = 3,
     .batch = 1,
     .in_channels = 2,
     .out_channels = 3,
     .groups = 1,
     .bias = true,
     .in = {5, 6, 7},
     .kernel = {2, 3, 2},
     .stride = {1, 2, 1},
     .dilation = {2, 1, 1},
     .pad_begin = {1, 1, 0},
     .pad_end = {0, 1, 1}},
};

static void check_convs(mp_device *device, bool transposed) {
    for (size_t i = 0; i < MP_COUNT_OF(conv_cases); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            mp_conv c = conv_cases[i];
            c.type = types[t];
            c.transposed = transposed;
            for (int32_t d = 0; transposed && d < c.spatial; d++) {
                if (c.pad_begin[d] + c.pad_end[d] > 4) { /* keeps the output from being empty */
                    c.pad_begin[d] = c.pad_end[d] = 1;
                }
            }
            check_conv(device, c);
            c.channels_last = true;
            check_conv(device, c);
        }
    }
}

DEVICE_TEST(convolutions) {
    check_convs(device, false);
}

DEVICE_TEST(transposed_convolutions) {
    check_convs(device, true);
}

TEST(large_convolutions_are_cut_into_panels) {
    mp_device *device = NULL;
    const mp_host_config config = {.memory_bytes = (size_t)1 << 30};
    CHECK_OK(mp__host_device_create(&config, &device));
    mp_conv c = {.spatial = 2,
                 .batch = 2,
                 .in_channels = 24,
                 .out_channels = 20,
                 .groups = 1,
                 .bias = true,
                 .in = {61, 67},
                 .kernel = {3, 3},
                 .stride = {1, 1},
                 .dilation = {1, 1},
                 .pad_begin = {1, 1},
                 .pad_end = {1, 1}};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        c.type = types[t];
        c.transposed = false;
        check_conv(device, c);
        c.transposed = true;
        check_conv(device, c);
    }
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

DEVICE_TEST(math_is_captured) {
    mp_stream *stream = NULL;
    mp_graph_exec *graph = NULL;
    mp_math *math = NULL;
    uint64_t random = 1;
    mp_gemm g = dense(MP_F32, 8, 8, 8, false, false);
    g.align = 16;
    operand a = make(device, MP_F32, 64, &random), b = make(device, MP_F32, 64, &random);
    operand c = make(device, MP_F32, 64, &random);
    const mp_addr operands[MP_GEMM_OPERANDS] = {a.there, b.there, c.there, c.there, c.there};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->gemm_prepare(device, &g, &math));
    mp_addr workspace = 0;
    const size_t size = device->ops->math_workspace(device, math);
    if (size > 0) {
        CHECK_OK(device->ops->alloc(device, size, &workspace));
    }
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace)); /* warms up */
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->fill(device, NULL, c.there, 0, 4, 64));
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace));
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    CHECK_OK(device->ops->graph_launch(device, graph, stream));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    fetch(device, &c);
    const operand all[MP_GEMM_OPERANDS] = {a, b, c, c, c};
    for (int64_t i = 0; i < 64; i++) {
        check_near(at(&c, i), gemm_expected(&g, all, 0, i / 8, i % 8), 3, MP_F32);
    }
    device->ops->graph_destroy(device, graph);
    device->ops->math_release(device, math);
    device->ops->stream_destroy(device, stream);
    if (size > 0) {
        device->ops->free(device, workspace, size);
    }
    drop(device, &a);
    drop(device, &b);
    drop(device, &c);
}

DEVICE_TEST(wrong_descriptions_are_refused) {
    mp_math *math = NULL;
    mp_gemm g = dense(MP_I32, 4, 4, 4, false, false);
    g.align = 4;
    CHECK_FAILS(device->ops->gemm_prepare(device, &g, &math), UNSUPPORTED, "");
}

TEST(the_emulated_device_refuses_wrong_sizes) {
    mp_device *device = NULL;
    mp_math *math = NULL;
    bool whole = true;
    const mp_host_config config = {.memory_bytes = (size_t)1 << 20};
    CHECK_OK(mp__host_device_create(&config, &device));
    mp_gemm g = dense(MP_F32, 4, 4, 4, false, false);
    g.lda = 3;
    CHECK_FAILS(device->ops->gemm_prepare(device, &g, &math), INVALID_ARGUMENT, "rows of 3");
    mp_conv c = conv_cases[1];
    c.type = MP_F32;
    c.groups = 2;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), INVALID_ARGUMENT, "2 groups");
    c.groups = 1;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), INVALID_ARGUMENT, "output 0");
    c.out[0] = c.out[1] = 1;
    c.x_pitch = 64;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), UNSUPPORTED, "lie apart");
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
