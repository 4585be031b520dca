/* integer_rows_test.c - IntegerProduct against plain loops: rows and images, tiles of each size
 * that are not full, results of each type, and sums of two tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/byte_rows.h"
#include "op/op_value.h"
#include "op/quantize/integer_rows_cut.h"

#include <math.h>
#include <stdlib.h>

enum { PADDING = 211, SUM_PARTS = 5 };

typedef struct problem {
    int64_t images, in[2], channels, filters; /* rows are images of one pixel */
    int64_t kernel[2], stride[2], dilation[2], begin[2], end[2];
    mp_dtype x, to;
    bool is_image, has_other, has_zero, one_scale;
    uint32_t skew;
} problem;

typedef struct data {
    uint8_t *x, *other;
    int8_t *w;
    int32_t *add, *sums;
    float *scale;
    uint8_t zero[1];
    float sum[SUM_PARTS];
    int64_t out[2];
} data;

static uint64_t next(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static void *bytes_of(uint64_t *seed, int64_t count) {
    uint8_t *x = malloc((size_t)count + 1);
    CHECK(x != NULL);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (uint8_t)next(seed);
    }
    return x;
}

static int32_t byte_at(mp_dtype type, const uint8_t *x, int64_t i) {
    return type == MP_I8 ? (int8_t)x[i] : x[i];
}

static data data_of(const problem *v) {
    uint64_t seed = (uint64_t)(v->channels * 31 + v->filters);
    const int64_t k = v->kernel[0] * v->kernel[1] * v->channels;
    data d = {.x = bytes_of(&seed, v->images * v->in[0] * v->in[1] * v->channels),
              .w = bytes_of(&seed, v->filters * k),
              .add = malloc((size_t)v->filters * sizeof(int32_t)),
              .sums = malloc((size_t)v->filters * sizeof(int32_t)),
              .scale = malloc((size_t)v->filters * sizeof(float)),
              .zero = {129},
              .sum = {0.25F, 3, 0.5F, 7, 0.375F}};
    for (int i = 0; i < 2; i++) {
        const int64_t room = v->in[i] + v->begin[i] + v->end[i];
        d.out[i] = (room - v->dilation[i] * (v->kernel[i] - 1) - 1) / v->stride[i] + 1;
    }
    d.other = bytes_of(&seed, v->images * d.out[0] * d.out[1] * v->filters);
    for (int64_t i = 0; i < v->filters; i++) {
        d.add[i] = (int32_t)(next(&seed) % 20000) - 10000;
        d.scale[i] = (0.5F + (float)(next(&seed) % 64) / 64) / (200 * sqrtf((float)k));
        d.sums[i] = 0;
        for (int64_t j = 0; j < k; j++) {
            d.sums[i] += d.w[i * k + j];
        }
    }
    return d;
}

static void free_data(const data *d) {
    free(d->x);
    free(d->other);
    free(d->w);
    free(d->add);
    free(d->sums);
    free(d->scale);
}

/* ---- plain loops ---- */

static int32_t read_x(const problem *v, const data *d, int64_t image, int64_t y, int64_t x,
                      int64_t channel) {
    const uint8_t padding = PADDING;
    const bool inside = y >= 0 && y < v->in[0] && x >= 0 && x < v->in[1];
    const int64_t at = ((image * v->in[0] + y) * v->in[1] + x) * v->channels + channel;
    return inside ? byte_at(v->x, d->x, at) : byte_at(v->x, &padding, 0);
}

static int32_t sum_of(const problem *v, const data *d, int64_t image, int64_t y, int64_t x,
                      int64_t filter) {
    const int64_t k = v->kernel[0] * v->kernel[1] * v->channels;
    const int32_t zero = v->has_zero ? byte_at(v->x, d->zero, 0) : 0;
    int32_t sum = d->add[filter];
    for (int64_t i = 0; i < k; i++) {
        const int64_t pixel = i / v->channels;
        const int64_t py = y * v->stride[0] - v->begin[0] + pixel / v->kernel[1] * v->dilation[0];
        const int64_t px = x * v->stride[1] - v->begin[1] + pixel % v->kernel[1] * v->dilation[1];
        sum += (read_x(v, d, image, py, px, i % v->channels) - zero) * d->w[filter * k + i];
    }
    return sum;
}

static int32_t quantised(double x, int32_t zero, int32_t low, int32_t high) {
    return (int32_t)fmin(fmax(nearbyint(x) + zero, low), high);
}

/* What has to be there, in double; bytes may be off by one where float falls to the other side. */
static double wanted(const problem *v, const data *d, int32_t sum, int64_t i, int64_t filter) {
    const double value = (double)sum * (double)d->scale[v->one_scale ? 0 : filter];
    const int32_t low = v->to == MP_I8 ? -128 : 0, high = low + 255;
    if (v->to == MP_I32 || v->to == MP_F32) {
        return v->to == MP_I32 ? sum : value;
    }
    if (!v->has_other) {
        return quantised(value, 5, MP_MAX(low, -100), high);
    }
    const int32_t alone = quantised(value, (int32_t)d->sum[1], -128, 127);
    const double both = (alone - (double)d->sum[1]) * (double)d->sum[0] +
                        (byte_at(MP_U8, d->other, i) - (double)d->sum[3]) * (double)d->sum[2];
    return quantised(both / (double)d->sum[4], 5, MP_MAX(low, -100), high);
}

static void check_all(const problem *v, const data *d, const op_tensor *out) {
    int64_t off = 0, count = v->images * d->out[0] * d->out[1] * v->filters;
    for (int64_t i = 0; i < count; i++) {
        const int64_t filter = i % v->filters, x = i / v->filters % d->out[1];
        const int64_t y = i / v->filters / d->out[1] % d->out[0];
        const int64_t image = i / v->filters / d->out[1] / d->out[0];
        const double want = wanted(v, d, sum_of(v, d, image, y, x, filter), i, filter);
        const double got = op_is_float(v->to) ? op_real(v->to, out->data, i)
                                              : (double)op_whole(v->to, out->data, i);
        const bool is_byte = v->to == MP_I8 || v->to == MP_U8;
        off += is_byte && got != want;
        CHECK(fabs(got - want) <= (is_byte ? 1 : 1e-6 * fabs(want)));
    }
    CHECK(off * 500 <= count + 500);
}

/* ---- the operator ---- */

static void run(mp_device *device, const problem *v) {
    data d = data_of(v);
    const mp_attr attrs[] = {
        OP_INT("to", v->to),
        OP_INT("zero", 5),
        OP_INT("low", -100),
        OP_INT("between", MP_I8),
        OP_INT("padding", PADDING),
        {.name = "sum", .kind = MP_ATTR_FLOATS, .floats = d.sum, .count = SUM_PARTS},
        OP_INTS("strides", v->stride[0], v->stride[1]),
        OP_INTS("dilations", v->dilation[0], v->dilation[1]),
        OP_INTS("pads", v->begin[0], v->begin[1], v->end[0], v->end[1])};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "IntegerProduct",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .align = v->skew != 0 ? 1 : 16,
                 .skew = v->skew,
                 .in_count = MP_ROWS_INPUTS,
                 .out_count = 1};
    const int64_t k = v->kernel[0] * v->kernel[1] * v->channels;
    if (v->is_image) {
        c.in[MP_ROWS_X] = OP_TENSOR(v->x, d.x, v->images, v->in[0], v->in[1], v->channels);
        c.in[MP_ROWS_W] =
            OP_TENSOR(MP_I8, d.w, v->filters, v->kernel[0], v->kernel[1], v->channels);
    } else {
        c.in[MP_ROWS_X] = OP_TENSOR(v->x, d.x, v->images, k);
        c.in[MP_ROWS_W] = OP_TENSOR(MP_I8, d.w, v->filters, k);
    }
    c.in[MP_ROWS_ADD] = OP_TENSOR(MP_I32, d.add, v->filters);
    c.in[MP_ROWS_SCALE] = op_f32(d.scale, v->one_scale ? 1 : v->filters);
    if (v->has_other) {
        c.in[MP_ROWS_OTHER] =
            v->is_image ? OP_TENSOR(MP_U8, d.other, v->images, d.out[0], d.out[1], v->filters)
                        : OP_TENSOR(MP_U8, d.other, v->images, v->filters);
    }
    if (v->has_zero) {
        c.in[MP_ROWS_ZERO] = OP_TENSOR(v->x, d.zero, 1);
        c.in[MP_ROWS_SUMS] = OP_TENSOR(MP_I32, d.sums, v->filters);
    }
    op_run(device, &c);
    CHECK(c.out[0].type == v->to);
    check_all(v, &d, &c.out[0]);
    op_close(device, &c);
    free_data(&d);
}

#define ROWS(count, k, n, ...)                                                              \
    {                                                                                       \
        .images = (count), .in = {1, 1}, .channels = (k), .filters = (n), .kernel = {1, 1}, \
        .stride = {1, 1}, .dilation = {1, 1}, __VA_ARGS__                                   \
    }
#define IMAGES(count, height, width, c, n, ky, kx, ...)                                \
    {                                                                                  \
        .images = (count), .in = {(height), (width)}, .channels = (c), .filters = (n), \
        .kernel = {(ky), (kx)}, .is_image = true, __VA_ARGS__                          \
    }
#define EVERY .stride = {1, 1}, .dilation = {1, 1}

DEVICE_TEST(integer_rows) {
    static const problem problems[] = {
        ROWS(1, 16, 1, .x = MP_I8, .to = MP_I32),
        ROWS(1, 8, 1000, .x = MP_U8, .to = MP_U8),
        ROWS(33, 96, 37, .x = MP_U8, .to = MP_I8),
        ROWS(3, 1000, 31, .x = MP_I8, .to = MP_F32, .has_zero = true, .one_scale = true),
        ROWS(65, 272, 66, .x = MP_U8, .to = MP_F32, .has_zero = true),
        ROWS(40, 72, 48, .x = MP_I8, .to = MP_U8, .has_other = true),
        ROWS(7, 64, 30, .x = MP_I8, .to = MP_I8, .has_other = true),
        ROWS(70, 64, 64, .x = MP_U8, .to = MP_I32, .skew = 4),
        ROWS(20, 40, 32, .x = MP_U8, .to = MP_I8, .has_other = true, .skew = 1),
    };
    for (size_t i = 0; i < MP_COUNT_OF(problems); i++) {
        run(device, &problems[i]);
    }
}

DEVICE_TEST(integer_images) {
    static const problem problems[] = {
        IMAGES(2, 9, 7, 16, 33, 3, 3, EVERY, .begin = {1, 1}, .end = {1, 1}, .x = MP_U8,
               .to = MP_U8),
        IMAGES(1, 8, 8, 32, 64, 3, 3, .stride = {2, 2}, .dilation = {1, 1}, .begin = {1, 0},
               .end = {0, 1}, .x = MP_I8, .to = MP_I8, .has_other = true),
        IMAGES(1, 11, 6, 24, 17, 3, 2, .stride = {1, 2}, .dilation = {2, 1}, .begin = {2, 1},
               .end = {2, 2}, .x = MP_U8, .to = MP_I8),
        IMAGES(3, 5, 5, 48, 40, 1, 1, EVERY, .x = MP_I8, .to = MP_U8, .has_other = true),
        IMAGES(1, 5, 6, 40, 24, 5, 5, EVERY, .begin = {4, 4}, .end = {4, 4}, .x = MP_I8,
               .to = MP_F32),
        IMAGES(1, 7, 7, 128, 32, 3, 3, EVERY, .begin = {1, 1}, .end = {1, 1}, .x = MP_U8,
               .to = MP_I8, .has_other = true),
    };
    for (size_t i = 0; i < MP_COUNT_OF(problems); i++) {
        run(device, &problems[i]);
    }
}

/* Enough tiles for each cut of a GPU, also such as come in turn. */
DEVICE_TEST(integer_rows_by_large_tiles) {
    static const problem problems[] = {
        ROWS(2100, 136, 1030, .x = MP_U8, .to = MP_I8),
        ROWS(4200, 64, 2100, .x = MP_I8, .to = MP_F32),
        IMAGES(9, 56, 56, 64, 130, 1, 1, EVERY, .x = MP_U8, .to = MP_U8, .has_other = true),
        IMAGES(5, 56, 57, 24, 72, 3, 3, EVERY, .begin = {1, 1}, .end = {1, 1}, .x = MP_I8,
               .to = MP_I8),
        IMAGES(33, 28, 28, 128, 256, 1, 1, EVERY, .x = MP_I8, .to = MP_I8, .has_other = true),
    };
    if (device->info.arch == 0) {
        SKIP("tiles are a GPU's, and these would take long");
    }
    for (size_t i = 0; i < MP_COUNT_OF(problems); i++) {
        run(device, &problems[i]);
    }
}

DEVICE_TEST(integer_rows_refuse_what_does_not_fit) {
    static const uint8_t x[512] = {0};
    const mp_attr far[] = {OP_INTS("strides", 1 << 30, 1), OP_INTS("pads", 1 << 30, 0, 1 << 30, 0)};
    const mp_attr to[] = {OP_INT("to", MP_I64)}, bytes[] = {OP_INT("to", MP_I8)};
    mp_plan *plan = NULL;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "IntegerProduct",
                 .version = 1,
                 .in = {OP_TENSOR(MP_I8, x, 2, 16), OP_TENSOR(MP_I8, x, 3, 8)},
                 .in_count = MP_ROWS_INPUTS,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT,
                "values of shape 2x16 do not go with weights of shape 3x8");
    c.in[MP_ROWS_W] = OP_TENSOR(MP_I8, x, 3, 16);
    c.in[MP_ROWS_ADD] = OP_TENSOR(MP_I32, x, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input 2 has 2 values for 3 columns");
    c.in[MP_ROWS_ADD] = (op_tensor){.type = MP_NONE};
    c.in[MP_ROWS_ZERO] = OP_TENSOR(MP_I8, x, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "is not one number");
    c.in[MP_ROWS_ZERO] = (op_tensor){.type = MP_NONE};
    c.attrs = to;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "gives bytes, int32 or float");
    c.attrs = bytes;
    c.in[MP_ROWS_OTHER] = OP_TENSOR(MP_I8, x, 2, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "by which scales");
    c.in[MP_ROWS_OTHER] = (op_tensor){.type = MP_NONE};
    c.in[MP_ROWS_X] = OP_TENSOR(MP_I8, x, 1, 4, 4, 8);
    c.in[MP_ROWS_W] = OP_TENSOR(MP_I8, x, 3, 1, 1, 8);
    c.attrs = far;
    c.attr_count = MP_COUNT_OF(far);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "an image of 4 elements and its padding");
}

TEST(integer_rows_have_a_cut_for_each_size) {
    const mp_integer_rows_cut *small = mp_integer_rows_cut_for(1, 1, 16, false, 132);
    const mp_integer_rows_cut *large = mp_integer_rows_cut_for(1 << 20, 4096, 4096, false, 132);
    const mp_integer_rows_cut *eight = mp_integer_rows_cut_for(1 << 20, 4096, 4096, true, 132);
    CHECK(small->rows <= 64 && small->split > 1);
    CHECK(large->rows == 128 && large->columns == 128);
    CHECK(eight->rows == 128 && eight->columns == 64);
}
