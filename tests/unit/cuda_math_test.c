/* cuda_math_test.c - matrix products and convolutions of a GPU against plain loops in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/math.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 1 << 22 };

/* ---- numbers: small eighths, exact in every type, so that sums differ by rounding only ---- */

static double value_at(uint64_t *state) {
    return (double)((int64_t)(test_random(state) % 33) - 16) / 8.0;
}

static uint16_t half_of(double value) { /* for exact values of moderate size */
    if (value == 0) {
        return 0;
    }
    int exponent = 0;
    const double fraction = frexp(fabs(value), &exponent); /* 0.5 to 1 */
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                      ((int)(fraction * 2048.0) & 0x3ff));
}

static double of_half(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 0x3ff;
    const double size =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

static void store(mp_dtype type, void *data, size_t index, double value) {
    const float single = (float)value;
    uint32_t bits = 0;
    memcpy(&bits, &single, sizeof bits);
    switch (type) {
    case MP_F64:
        ((double *)data)[index] = value;
        break;
    case MP_F16:
        ((uint16_t *)data)[index] = half_of(value);
        break;
    case MP_BF16:
        ((uint16_t *)data)[index] = (uint16_t)(bits >> 16);
        break;
    default:
        ((float *)data)[index] = single;
        break;
    }
}

static double load(mp_dtype type, const void *data, size_t index) {
    const uint32_t bits = type == MP_BF16 ? (uint32_t)((const uint16_t *)data)[index] << 16 : 0;
    float single = 0;
    memcpy(&single, &bits, sizeof single);
    return type == MP_F64    ? ((const double *)data)[index]
           : type == MP_F16  ? of_half(((const uint16_t *)data)[index])
           : type == MP_BF16 ? (double)single
                             : (double)((const float *)data)[index];
}

static double tolerance(mp_dtype type, bool tf32) {
    return type == MP_F64 ? 1e-12 : type == MP_BF16 ? 8e-3 : type == MP_F16 || tf32 ? 1e-3 : 2e-6;
}

/* ---- operands on both sides ---- */

typedef struct operand {
    size_t count;
    double *values; /* what the reference reads */
    void *bytes;
    mp_addr addr;
} operand;

static operand operand_make(mp_device *device, mp_dtype type, int64_t count, uint64_t *state) {
    operand made = {.count = (size_t)count};
    made.values = calloc(made.count + 1, sizeof *made.values);
    made.bytes = calloc(made.count + 1, 8);
    CHECK(made.values != NULL && made.bytes != NULL);
    for (size_t i = 0; i < made.count; i++) {
        made.values[i] = value_at(state);
        store(type, made.bytes, i, made.values[i]);
    }
    CHECK_OK(device->ops->alloc(device, BYTES_MAX, &made.addr));
    if (made.count > 0) {
        CHECK_OK(device->ops->copy(device, NULL, made.addr, (mp_addr)made.bytes,
                                   made.count * mp_dtype_size(type)));
    }
    return made;
}

static void operand_free(mp_device *device, operand *gone) {
    device->ops->free(device, gone->addr, BYTES_MAX);
    free(gone->values);
    free(gone->bytes);
}

/* The values on the device against those of the operand. `terms` summands went into each. */
static void compare(mp_device *device, mp_dtype type, bool tf32, const operand *result,
                    int64_t terms, const char *what) {
    const double room = tolerance(type, tf32) * (sqrt((double)terms) * 4 + 8);
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)result->bytes, result->addr,
                               result->count * mp_dtype_size(type)));
    for (size_t i = 0; i < result->count; i++) {
        const double got = load(type, result->bytes, i);
        const double want = result->values[i];
        if (!(fabs(got - want) <= room * (1 + fabs(want) / 16))) {
            test_fail(__FILE__, __LINE__, "%s, %s: element %zu is %g instead of %g", what,
                      mp_dtype_name(type), i, got, want);
        }
    }
}

static void run(mp_device *device, mp_stream *stream, mp_math *math, const mp_addr *operands) {
    const size_t size = device->ops->math_workspace(device, math);
    mp_addr workspace = 0;
    if (size > 0) {
        CHECK_OK(device->ops->alloc(device, size, &workspace));
        CHECK_OK(device->ops->fill(device, NULL, workspace, 0xff, 1, size)); /* NaN everywhere */
    }
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    if (size > 0) {
        device->ops->free(device, workspace, size);
    }
}

/* ---- matrix products ---- */

static void gemm_reference(const mp_gemm *g, const operand *a, const operand *b, operand *c,
                           const operand *d, const operand *bias) {
    for (int64_t at = 0; at < g->batch * g->m * g->n; at++) {
        const int64_t batch = at / (g->m * g->n), i = at / g->n % g->m, j = at % g->n;
        double sum = 0;
        for (int64_t k = 0; k < g->k; k++) {
            const int64_t ia = batch * g->stride_a + (g->trans_a ? k * g->lda + i : i * g->lda + k);
            const int64_t ib = batch * g->stride_b + (g->trans_b ? j * g->ldb + k : k * g->ldb + j);
            sum += a->values[ia] * b->values[ib];
        }
        const int64_t ic = batch * g->stride_c + i * g->ldc + j;
        c->values[ic] = (double)g->alpha * sum + (g->bias ? bias->values[j] : 0) +
                        (g->beta != 0 ? (double)g->beta * d->values[ic] : 0);
    }
}

static void gemm_check(mp_device *device, mp_stream *stream, const mp_gemm *g, bool in_place,
                       const char *what) {
    uint64_t state = 7;
    mp_math *math = NULL;
    const int64_t a_rows = g->trans_a ? g->k : g->m;
    const int64_t b_rows = g->trans_b ? g->n : g->k;
    operand a =
        operand_make(device, g->type, (g->batch - 1) * g->stride_a + a_rows * g->lda, &state);
    operand b =
        operand_make(device, g->type, (g->batch - 1) * g->stride_b + b_rows * g->ldb, &state);
    operand c = operand_make(device, g->type, (g->batch - 1) * g->stride_c + g->m * g->ldc, &state);
    operand d = operand_make(device, g->type, (g->batch - 1) * g->stride_c + g->m * g->ldc, &state);
    operand bias = operand_make(device, g->type, g->n, &state);
    gemm_reference(g, &a, &b, &c, in_place ? &c : &d, &bias);
    CHECK_OK(device->ops->gemm_prepare(device, g, &math));
    const mp_addr operands[MP_GEMM_OPERANDS] = {a.addr, b.addr, c.addr, in_place ? c.addr : d.addr,
                                                bias.addr};
    run(device, stream, math, operands);
    compare(device, g->type, g->tf32, &c, g->k, what);
    device->ops->math_release(device, math);
    operand_free(device, &a);
    operand_free(device, &b);
    operand_free(device, &c);
    operand_free(device, &d);
    operand_free(device, &bias);
}

static const mp_dtype float_types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};

static mp_gemm gemm_of(mp_dtype type, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
    const int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n;
    return (mp_gemm){.type = type,
                     .trans_a = trans_a,
                     .trans_b = trans_b,
                     .m = m,
                     .n = n,
                     .k = k,
                     .lda = lda > 0 ? lda : 1,
                     .ldb = ldb > 0 ? ldb : 1,
                     .ldc = n,
                     .batch = 1,
                     .alpha = 1,
                     .align = 256};
}

TEST(cuda_gemm_shapes) {
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 64, 32},  {64, 1, 32},   {33, 17, 5},
                                       {7, 129, 64}, {64, 64, 64}, {128, 96, 384}};
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (size_t i = 0; i < MP_COUNT_OF(sizes) * 16; i++) {
        const int64_t *size = sizes[i / 16];
        const mp_gemm g =
            gemm_of(float_types[i % 4], (i & 4) != 0, (i & 8) != 0, size[0], size[1], size[2]);
        gemm_check(device, stream, &g, false, "plain");
    }
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_gemm_forms) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (size_t i = 0; i < MP_COUNT_OF(float_types); i++) {
        const mp_gemm plain = gemm_of(float_types[i], false, true, 24, 40, 48);
        mp_gemm g = plain;
        g.alpha = 0.5F;
        g.beta = -2;
        gemm_check(device, stream, &g, false, "alpha and beta");
        gemm_check(device, stream, &g, true, "in place");
        g.bias = true;
        gemm_check(device, stream, &g, false, "alpha, beta and bias");
        g = plain;
        g.bias = true;
        gemm_check(device, stream, &g, false, "bias");
        g = plain;
        g.lda = 56;
        g.ldb = 64;
        g.ldc = 48;
        g.align = (int32_t)mp_dtype_size(g.type);
        g.batch = 3;
        g.stride_a = 0;
        g.stride_b = 64 * 40 + 8;
        g.stride_c = 48 * 24;
        gemm_check(device, stream, &g, false, "batch with rows apart");
        g.bias = true;
        g.beta = 1;
        gemm_check(device, stream, &g, false, "batch with bias");
    }
    mp_gemm g = gemm_of(MP_F32, false, false, 64, 64, 64);
    g.tf32 = true;
    gemm_check(device, stream, &g, false, "TF32");
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_gemm_without_depth) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (size_t i = 0; i < MP_COUNT_OF(float_types); i++) {
        mp_gemm g = gemm_of(float_types[i], false, false, 5, 7, 0);
        gemm_check(device, stream, &g, false, "zeros");
        g.bias = true;
        gemm_check(device, stream, &g, false, "bias alone");
        g.beta = 0.5F;
        g.batch = 2;
        g.stride_c = 35;
        gemm_check(device, stream, &g, false, "beta and bias");
    }
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_gemm_refuses) {
    mp_device *device = test_gpu();
    mp_math *math = NULL;
    mp_gemm g = gemm_of(MP_I32, false, false, 4, 4, 4);
    CHECK_FAILS(device->ops->gemm_prepare(device, &g, &math), UNSUPPORTED, "int32");
    g = gemm_of(MP_F32, false, false, 4, 4, 4);
    g.lda = 3;
    CHECK_FAILS(device->ops->gemm_prepare(device, &g, &math), INVALID_ARGUMENT, "row lengths");
}

/* One prepared product with bias, run by several threads with operands of their own. */
typedef struct gemm_job {
    mp_device *device;
    mp_math *math;
    mp_gemm gemm;
    uint64_t seed;
} gemm_job;

static void *gemm_thread(void *context) {
    const gemm_job *job = context;
    mp_device *device = job->device;
    const mp_gemm *g = &job->gemm;
    mp_stream *stream = NULL;
    uint64_t state = job->seed;
    CHECK_OK(device->ops->stream_create(device, &stream));
    operand a = operand_make(device, g->type, g->m * g->k, &state);
    operand b = operand_make(device, g->type, g->k * g->n, &state);
    operand c = operand_make(device, g->type, g->m * g->n, &state);
    operand bias = operand_make(device, g->type, g->n, &state);
    gemm_reference(g, &a, &b, &c, &c, &bias);
    const mp_addr operands[MP_GEMM_OPERANDS] = {a.addr, b.addr, c.addr, 0, bias.addr};
    for (int i = 0; i < 20; i++) {
        run(device, stream, job->math, operands);
        compare(device, g->type, false, &c, g->k, "in threads");
    }
    operand_free(device, &a);
    operand_free(device, &b);
    operand_free(device, &c);
    operand_free(device, &bias);
    device->ops->stream_destroy(device, stream);
    return NULL;
}

TEST(cuda_gemm_in_threads) {
    gemm_job jobs[4];
    pthread_t threads[4];
    mp_device *device = test_gpu();
    mp_math *math = NULL;
    mp_gemm g = gemm_of(MP_F32, false, false, 32, 48, 64);
    g.bias = true;
    CHECK_OK(device->ops->gemm_prepare(device, &g, &math));
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        jobs[i] = (gemm_job){.device = device, .math = math, .gemm = g, .seed = i + 1};
        CHECK(pthread_create(&threads[i], NULL, gemm_thread, &jobs[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    device->ops->math_release(device, math);
}

/* ---- convolutions ---- */

static int64_t volume(const int64_t *sizes, int32_t spatial) {
    int64_t product = 1;
    for (int32_t i = 0; i < spatial; i++) {
        product *= sizes[i];
    }
    return product;
}

static void split(int64_t index, const int64_t *sizes, int32_t spatial, int64_t *out) {
    for (int32_t i = spatial - 1; i >= 0; i--) {
        out[i] = index % sizes[i];
        index /= sizes[i];
    }
}

/* Where tap `tap` of place `narrow` lies on the wide side; -1 outside. */
static int64_t wide_of(const mp_conv *c, const int64_t *sizes, int64_t narrow, int64_t tap,
                       const int64_t *narrow_sizes) {
    int64_t at[3], kernel[3], index = 0;
    split(narrow, narrow_sizes, c->spatial, at);
    split(tap, c->kernel, c->spatial, kernel);
    for (int32_t i = 0; i < c->spatial; i++) {
        const int64_t place = at[i] * c->stride[i] - c->pad_begin[i] + kernel[i] * c->dilation[i];
        if (place < 0 || place >= sizes[i]) {
            return -1;
        }
        index = index * sizes[i] + place;
    }
    return index;
}

/* Where an element lies in [outer][channels][points], or with channels last. */
static int64_t spot(const mp_conv *c, int64_t outer, int64_t channels, int64_t points,
                    int64_t channel, int64_t point) {
    return c->channels_last ? (outer * points + point) * channels + channel
                            : (outer * channels + channel) * points + point;
}

/* Both directions: y gathers from x, or (transposed) x scatters into y. */
static void conv_reference(const mp_conv *c, const operand *x, const operand *w, operand *y,
                           const operand *bias) {
    const int64_t x_size = volume(c->in, c->spatial), y_size = volume(c->out, c->spatial);
    const int64_t taps = volume(c->kernel, c->spatial);
    const int64_t ig = c->in_channels / c->groups, og = c->out_channels / c->groups;
    const int64_t *wide = c->transposed ? c->out : c->in;
    const int64_t *narrow = c->transposed ? c->in : c->out;
    const int64_t narrow_size = c->transposed ? x_size : y_size;
    for (int64_t i = 0; i < c->batch * c->out_channels * y_size; i++) {
        const int64_t channel = (c->channels_last ? i : i / y_size) % c->out_channels;
        y->values[i] = c->bias ? bias->values[channel] : 0;
    }
    for (int64_t at = 0; at < c->batch * c->out_channels * ig * narrow_size * taps; at++) {
        const int64_t tap = at % taps, place = at / taps % narrow_size;
        const int64_t i = at / taps / narrow_size % ig;
        const int64_t o = at / taps / narrow_size / ig % c->out_channels;
        const int64_t b = at / taps / narrow_size / ig / c->out_channels;
        const int64_t in = o / og * ig + i;
        const int64_t there = wide_of(c, wide, place, tap, narrow);
        if (there < 0) {
            continue;
        }
        const int64_t ix = spot(c, b, c->in_channels, x_size, in, c->transposed ? place : there);
        const int64_t iy = spot(c, b, c->out_channels, y_size, o, c->transposed ? there : place);
        const int64_t iw =
            c->transposed ? spot(c, in, og, taps, o % og, tap) : spot(c, o, ig, taps, i, tap);
        y->values[iy] += x->values[ix] * w->values[iw];
    }
}

static void conv_check_one(mp_device *device, mp_stream *stream, const mp_conv *c,
                           const char *what) {
    uint64_t state = 11;
    mp_math *math = NULL;
    bool whole = true;
    const int64_t taps = volume(c->kernel, c->spatial);
    operand x = operand_make(device, c->type, c->batch * c->in_channels * volume(c->in, c->spatial),
                             &state);
    operand w =
        operand_make(device, c->type, c->in_channels * c->out_channels / c->groups * taps, &state);
    operand y = operand_make(device, c->type,
                             c->batch * c->out_channels * volume(c->out, c->spatial), &state);
    operand bias = operand_make(device, c->type, c->out_channels, &state);
    conv_reference(c, &x, &w, &y, &bias);
    const mp_status status = device->ops->conv_prepare(device, c, &math, &whole);
    if (status == MP_UNSUPPORTED && strstr(mp_error_message(), "need cuDNN") != NULL) {
        SKIP("%s", mp_error_message());
    }
    if (status != MP_OK) {
        test_fail(__FILE__, __LINE__, "%s, %s: %s", what, mp_dtype_name(c->type),
                  mp_error_message());
    }
    const mp_addr operands[MP_CONV_OPERANDS] = {x.addr, w.addr, y.addr, bias.addr};
    for (int i = 0; i < 2; i++) { /* a second run takes other paths */
        CHECK_OK(
            device->ops->fill(device, NULL, y.addr, 0xff, 1, y.count * mp_dtype_size(c->type)));
        run(device, stream, math, operands);
        compare(device, c->type, c->tf32, &y, taps * c->in_channels / c->groups, what);
    }
    device->ops->math_release(device, math);
    operand_free(device, &x);
    operand_free(device, &w);
    operand_free(device, &y);
    operand_free(device, &bias);
}

/* Aligned operands may go another way than those of which nothing is known. */
static void conv_check(mp_device *device, mp_stream *stream, const mp_conv *c, const char *what) {
    mp_conv aligned = *c;
    aligned.align = 16;
    conv_check_one(device, stream, c, what);
    conv_check_one(device, stream, &aligned, what);
}

/* Sizes follow from the input's: `out` as ONNX derives it. */
static mp_conv conv_of(int32_t spatial, int64_t in, int64_t kernel, int64_t stride,
                       int64_t dilation, int64_t begin, int64_t end, bool transposed) {
    mp_conv c = {.type = MP_F32,
                 .transposed = transposed,
                 .spatial = spatial,
                 .search = 1,
                 .batch = 2,
                 .in_channels = 4,
                 .out_channels = 6,
                 .groups = 1};
    for (int32_t i = 0; i < spatial; i++) {
        const int64_t reach = (kernel - 1) * dilation + 1;
        c.in[i] = in + i; /* not all alike */
        c.kernel[i] = kernel;
        c.stride[i] = stride;
        c.dilation[i] = dilation;
        c.pad_begin[i] = begin;
        c.pad_end[i] = end;
        c.out[i] = transposed ? stride * (c.in[i] - 1) + reach - begin - end
                              : (c.in[i] + begin + end - reach) / stride + 1;
    }
    return c;
}

static void conv_check_tails(mp_device *device, mp_stream *stream, mp_conv c, const char *what) {
    for (int i = 0; i < 2; i++) {
        c.bias = i != 0;
        conv_check(device, stream, &c, what);
    }
}

static void conv_check_all(bool transposed) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (int32_t spatial = 1; spatial <= 3; spatial++) {
        const int64_t in = spatial == 3 ? 5 : 9;
        conv_check_tails(device, stream, conv_of(spatial, in, 3, 1, 1, 1, 1, transposed), "same");
        conv_check_tails(device, stream, conv_of(spatial, in, 3, 2, 1, 0, 1, transposed),
                         "uneven padding");
        conv_check_tails(device, stream, conv_of(spatial, in, 1, 1, 1, 0, 0, transposed),
                         "pointwise");
        mp_conv c = conv_of(spatial, in, 2, 1, 2, 2, 0, transposed);
        conv_check_tails(device, stream, c, "dilated, uneven padding");
        c = conv_of(spatial, in, 3, 2, 1, 1, 1, transposed);
        c.groups = 2;
        conv_check_tails(device, stream, c, "groups");
        c = conv_of(spatial, in, 3, 1, 1, 1, 1, transposed);
        c.groups = c.out_channels = c.in_channels;
        conv_check_tails(device, stream, c, "depthwise");
    }
    mp_conv c = conv_of(2, 6, 3, 1, 1, 5, 4, false);
    if (!transposed) {
        conv_check_tails(device, stream, c, "padding larger than the kernel");
    } else {
        c = conv_of(2, 6, 3, 2, 1, 1, 1, true);
        c.out[0] += 1; /* output padding */
        c.out[1] += 1;
        conv_check_tails(device, stream, c, "output padding");
        c.out[0] += 2;
        conv_check_tails(device, stream, c, "larger output");
    }
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_conv_forward) {
    conv_check_all(false);
}

TEST(cuda_conv_transposed) {
    conv_check_all(true);
}

TEST(cuda_conv_types_and_searches) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (int i = 0; i < 4 * 3 * 2; i++) {
        mp_conv c = conv_of(2, 12, 3, 1, 1, 1, 1, i % 2 != 0);
        c.type = float_types[i / 2 % 4];
        c.search = i / 8;
        c.in_channels = c.out_channels = 8;
        c.workspace_max = c.search == 0;
        conv_check_tails(device, stream, c, "type and search");
        c.pad_end[0] = 0;
        c.out[0] += c.transposed ? 1 : -1;
        conv_check_tails(device, stream, c, "type and uneven padding");
    }
    mp_conv c = conv_of(2, 12, 3, 1, 1, 1, 1, false);
    c.tf32 = true;
    conv_check(device, stream, &c, "TF32");
    device->ops->stream_destroy(device, stream);
}

/* What tensor cores are made for must work as it is, without turning the tensors. */
TEST(cuda_conv_channels_last) {
    static const mp_dtype types[] = {MP_F16, MP_BF16, MP_F32};
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        mp_conv c = conv_of(2, 12, 3, 1, 1, 1, 1, false);
        c.type = types[i];
        c.channels_last = true;
        c.tf32 = true;
        c.in_channels = 16;
        c.out_channels = 24;
        c.align = 16;
        for (int tail = 0; tail < 2; tail++) {
            c.bias = tail != 0;
            conv_check_one(device, stream, &c, "channels last");
        }
        c.pad_end[0] = 2;
        c.out[0] += 1;
        conv_check_one(device, stream, &c, "channels last, uneven padding");
    }
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_conv_refuses) {
    mp_device *device = test_gpu();
    mp_math *math = NULL;
    bool whole = true;
    mp_conv c = conv_of(2, 9, 3, 1, 1, 1, 1, false);
    c.groups = 3;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), INVALID_ARGUMENT, "groups");
    c.groups = 1;
    c.type = MP_I8;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), UNSUPPORTED, "int8");
    c.type = MP_F16;
    c.y_pitch = 32;
    CHECK_FAILS(device->ops->conv_prepare(device, &c, &math, &whole), UNSUPPORTED, "lie apart");
}

/* A convolution inside a captured graph, after one run to warm up. */
static void conv_check_captured(int32_t align) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_graph_exec *graph = NULL;
    mp_math *math = NULL;
    bool whole = true;
    mp_addr workspace = 0;
    uint64_t state = 3;
    mp_conv c = conv_of(2, 9, 3, 2, 1, 0, 1, false);
    c.bias = true;
    c.align = align;
    CHECK_OK(device->ops->stream_create(device, &stream));
    if (device->ops->conv_prepare(device, &c, &math, &whole) != MP_OK) {
        SKIP("%s", mp_error_message());
    }
    operand x = operand_make(device, c.type, c.batch * c.in_channels * c.in[0] * c.in[1], &state);
    operand w = operand_make(device, c.type, c.in_channels * c.out_channels * 9, &state);
    operand y =
        operand_make(device, c.type, c.batch * c.out_channels * c.out[0] * c.out[1], &state);
    operand bias = operand_make(device, c.type, c.out_channels, &state);
    conv_reference(&c, &x, &w, &y, &bias);
    const mp_addr operands[MP_CONV_OPERANDS] = {x.addr, w.addr, y.addr, bias.addr};
    const size_t size = device->ops->math_workspace(device, math) + 1;
    CHECK_OK(device->ops->alloc(device, size, &workspace));
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_OK(device->ops->math_run(device, stream, math, operands, workspace));
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    CHECK_OK(device->ops->fill(device, NULL, y.addr, 0xff, 1, y.count * 4));
    CHECK_OK(device->ops->graph_launch(device, graph, stream));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    compare(device, c.type, false, &y, 36, "in a graph");
    device->ops->graph_destroy(device, graph);
    device->ops->math_release(device, math);
    device->ops->free(device, workspace, size);
    operand_free(device, &x);
    operand_free(device, &w);
    operand_free(device, &y);
    operand_free(device, &bias);
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_conv_in_a_graph) {
    conv_check_captured(1);
    conv_check_captured(16);
}
