/* channels_test.c - operators with channels first and last, and those that treat each channel in
 * its own way, against plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NHWC "com.ms.internal.nhwc"

enum { BATCH = 2, CHANNELS = 5, ROWS = 3, COLUMNS = 4, COUNT = BATCH * CHANNELS * ROWS * COLUMNS };
enum { POINTS = ROWS * COLUMNS };

static float number(int i) {
    return (float)((i * 37 + 11) % 41) / 10.0F - 2.0F;
}

/* Where element (n, c, point) lies. */
static int place(bool last, int n, int c, int point) {
    return last ? (n * POINTS + point) * CHANNELS + c : (n * CHANNELS + c) * POINTS + point;
}

static op_tensor image(bool last, float x[COUNT]) {
    for (int i = 0; i < COUNT; i++) {
        const int point = i % POINTS, c = i / POINTS % CHANNELS, n = i / POINTS / CHANNELS;
        x[place(last, n, c, point)] = number(i);
    }
    return last ? op_f32(x, BATCH, ROWS, COLUMNS, CHANNELS)
                : op_f32(x, BATCH, CHANNELS, ROWS, COLUMNS);
}

static void check_near(float value, double expected) {
    CHECK(fabs((double)value - expected) <= 1e-5 * (1 + fabs(expected)));
}

/* ---- LRN ---- */

/* ONNX's bounds: (size - 1) / 2 channels before, rounded down, and the rest after. */
static double response(int n, int c, int point, int size, double alpha, double beta, double bias) {
    double sum = 0;
    for (int other = 0; other < CHANNELS; other++) {
        if (other >= c - (size - 1) / 2 && other <= c + size - 1 - (size - 1) / 2) {
            const double x = (double)number((n * CHANNELS + other) * POINTS + point);
            sum += x * x;
        }
    }
    return (double)number((n * CHANNELS + c) * POINTS + point) /
           pow(bias + alpha / size * sum, beta);
}

static void check_lrn(mp_device *device, bool last, int size) {
    float x[COUNT];
    const mp_attr attrs[] = {OP_INT("size", size),
                             {.name = "alpha", .kind = MP_ATTR_FLOAT, .f = 0.5F},
                             {.name = "beta", .kind = MP_ATTR_FLOAT, .f = 0.6F},
                             {.name = "bias", .kind = MP_ATTR_FLOAT, .f = 1.5F}};
    op_case c = {.domain = last ? NHWC : NULL,
                 .name = "LRN",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .in = {image(last, x)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const float *y = c.out[0].data;
    for (int i = 0; i < COUNT; i++) {
        const int point = i % POINTS, channel = i / POINTS % CHANNELS, n = i / POINTS / CHANNELS;
        check_near(y[place(last, n, channel, point)],
                   response(n, channel, point, size, 0.5, (double)0.6F, 1.5));
    }
    op_close(device, &c);
}

DEVICE_TEST(lrn_counts_channels_around) {
    for (int size = 1; size <= 8; size++) { /* odd ones, even ones, more than there are */
        check_lrn(device, false, size);
        check_lrn(device, true, size);
    }
}

/* Planes large enough that a lane has some channels of a pixel. */
static void check_lrn_of_planes(mp_device *device, int channels, int size, float beta) {
    enum { PIXELS = 37 };
    const int count = BATCH * channels * PIXELS;
    float *x = calloc((size_t)count, sizeof *x);
    for (int i = 0; i < count; i++) {
        x[i] = number(i);
    }
    const mp_attr attrs[] = {OP_INT("size", size),
                             {.name = "alpha", .kind = MP_ATTR_FLOAT, .f = 0.5F},
                             {.name = "beta", .kind = MP_ATTR_FLOAT, .f = beta}};
    op_case c = {.name = "LRN",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .in = {op_f32(x, BATCH, channels, PIXELS)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const float *y = c.out[0].data;
    for (int i = 0; i < count; i++) {
        const int channel = i / PIXELS % channels;
        double sum = 0;
        for (int k = -((size - 1) / 2); k <= size - 1 - (size - 1) / 2; k++) {
            const bool is = channel + k >= 0 && channel + k < channels;
            sum += is ? (double)x[i + k * PIXELS] * (double)x[i + k * PIXELS] : 0;
        }
        check_near(y[i], (double)x[i] / pow(1 + 0.5 / size * sum, (double)beta));
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(lrn_of_planes) {
    for (int size = 1; size <= 7; size++) {
        for (int channels = 1; channels <= 9; channels += 2) {
            check_lrn_of_planes(device, channels, size, size % 2 ? 0.75F : 0.6F);
        }
    }
}

/* ---- BatchNormalization ---- */

static void check_batch_norm(mp_device *device, bool last) {
    static const float scale[CHANNELS] = {1, -2, 0.5F, 3, 0}, bias[CHANNELS] = {0, 1, -1, 2, 0.5F};
    static const float mean[CHANNELS] = {0.1F, 0, -1, 2, 1}, var[CHANNELS] = {1, 0.25F, 4, 0.5F, 0};
    float x[COUNT];
    const mp_attr attrs[] = {{.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = 0.01F}};
    op_case c = {.domain = last ? NHWC : NULL,
                 .name = "BatchNormalization",
                 .version = 15,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .in = {image(last, x), op_f32(scale, CHANNELS), op_f32(bias, CHANNELS),
                        op_f32(mean, CHANNELS), op_f32(var, CHANNELS)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    const float *y = c.out[0].data;
    for (int i = 0; i < COUNT; i++) {
        const int point = i % POINTS, k = i / POINTS % CHANNELS, n = i / POINTS / CHANNELS;
        const double deviation = sqrt((double)var[k] + (double)0.01F);
        const double normal = ((double)number(i) - (double)mean[k]) / deviation;
        check_near(y[place(last, n, k, point)], normal * (double)scale[k] + (double)bias[k]);
    }
    op_close(device, &c);
}

DEVICE_TEST(batches_are_normalized_by_channel) {
    check_batch_norm(device, false);
    check_batch_norm(device, true);
}

/* ---- one operator of each kind that has windows or moves channels ---- */

static void check_global_pool(mp_device *device, bool last) {
    float x[COUNT];
    op_case c = {.domain = last ? NHWC : NULL,
                 .name = "GlobalMaxPool",
                 .version = 1,
                 .in = {image(last, x)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[last ? 3 : 1], CHANNELS);
    const float *y = c.out[0].data;
    for (int plane = 0; plane < BATCH * CHANNELS; plane++) {
        float most = number(plane * POINTS);
        for (int i = 1; i < POINTS; i++) {
            most = number(plane * POINTS + i) > most ? number(plane * POINTS + i) : most;
        }
        CHECK(y[plane] == most); /* one point: both orders are the same */
    }
    op_close(device, &c);
}

DEVICE_TEST(global_pools_keep_channels) {
    check_global_pool(device, false);
    check_global_pool(device, true);
}

/* Turned in both directions, a block of pixels is where it was. */
DEVICE_TEST(depth_and_space_are_each_others_way_back) {
    float x[COUNT];
    for (int last = 0; last < 2; last++) {
        const mp_attr attrs[] = {OP_INT("blocksize", 2)};
        (void)image(last != 0, x);
        op_case there = {.domain = last ? NHWC : NULL,
                         .name = "SpaceToDepth",
                         .version = 13,
                         .attrs = attrs,
                         .attr_count = 1,
                         .in = {last ? op_f32(x, 1, 4, 6, 5) : op_f32(x, 1, 5, 4, 6)},
                         .in_count = 1,
                         .out_count = 1};
        op_run(device, &there);
        CHECK_EQ_INT(there.out[0].shape.dim[last ? 3 : 1], 20);
        op_case back = there;
        back.name = "DepthToSpace";
        back.in[0] = there.out[0];
        op_run(device, &back);
        for (size_t i = 0; i < MP_COUNT_OF(x); i++) {
            CHECK(((const float *)back.out[0].data)[i] == x[i]);
        }
        const float *deep = there.out[0].data; /* the second pixel of a line is channel 5 */
        CHECK(deep[last ? 5 : 5 * 2 * 3] == x[last ? 5 : 1]);
        op_close(device, &back);
        op_close(device, &there);
    }
}

/* ---- convolutions, whose weights may be constants ---- */

enum { KERNEL = 2, TAPS = KERNEL * KERNEL, OUT_MAX = 6 };

/* Sums of products with channels first; a transposed one goes from each point to its neighbours. */
static void convolve(bool transposed, int group, int outer, const float *w, double *y) {
    const int rows = transposed ? ROWS + 1 : ROWS - 1,
              columns = transposed ? COLUMNS + 1 : COLUMNS - 1;
    const int inner = CHANNELS / group, outs = outer / group;
    memset(y, 0, sizeof(double) * (size_t)(BATCH * outer * rows * columns));
    for (int i = 0; i < COUNT * outs * TAPS; i++) {
        const int tap = i % TAPS, o = i / TAPS % outs, at = i / TAPS / outs;
        const int c = at / POINTS % CHANNELS, n = at / POINTS / CHANNELS, in = c % inner;
        const int out = c / inner * outs + o, sign = transposed ? 1 : -1;
        const int row = at % POINTS / COLUMNS + sign * (tap / KERNEL);
        const int column = at % COLUMNS + sign * (tap % KERNEL);
        if (row >= 0 && row < rows && column >= 0 && column < columns) {
            const int weight = transposed ? c * outs + o : out * inner + in;
            y[((n * outer + out) * rows + row) * columns + column] +=
                (double)number(at) * (double)w[weight * TAPS + tap];
        }
    }
}

static void check_conv(mp_device *device, bool transposed, int group, int outer, bool constant) {
    float x[COUNT], w[CHANNELS * OUT_MAX * TAPS];
    double want[BATCH * OUT_MAX * (ROWS + 1) * (COLUMNS + 1)];
    const int first = transposed ? CHANNELS : outer;
    const int second = (transposed ? outer : CHANNELS) / group;
    const int points = transposed ? (ROWS + 1) * (COLUMNS + 1) : (ROWS - 1) * (COLUMNS - 1);
    const mp_attr attrs[] = {OP_INT("group", group)};
    op_case c = {.domain = NHWC,
                 .name = transposed ? "ConvTranspose" : "Conv",
                 .version = 11,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {image(true, x), op_f32(w, first, second, KERNEL, KERNEL)},
                 .in_count = 2,
                 .out_count = 1,
                 .constant = constant ? 2 : 0};
    for (int i = 0; i < first * second * TAPS; i++) {
        w[i] = number(i * 7 + 3);
    }
    convolve(transposed, group, outer, w, want);
    op_run(device, &c);
    CHECK_EQ_INT(c.prepared, constant ? 2 : 0);
    const float *y = c.out[0].data;
    for (int i = 0; i < BATCH * outer * points; i++) {
        const int point = i % points, k = i / points % outer, n = i / points / outer;
        check_near(y[(n * points + point) * outer + k], want[i]);
    }
    op_close(device, &c);
}

DEVICE_TEST(weights_of_convolutions_are_prepared_once_or_turned) {
    for (int constant = 0; constant < 2; constant++) {
        check_conv(device, false, 1, 4, constant != 0);
        check_conv(device, false, CHANNELS, CHANNELS, constant != 0); /* a channel a group */
        check_conv(device, true, 1, 3, constant != 0);
    }
}

/* ---- what is refused ---- */

static void refuse(mp_device *device, op_case *c, mp_status expected, const char *text) {
    mp_plan *plan = NULL;
    const mp_status status = op_plan(device, c, &plan);
    if (status != expected || strstr(mp_error_message(), text) == NULL) {
        test_fail(__FILE__, __LINE__, "status %d, '%s', where %d with '%s' is expected",
                  (int)status, mp_error_message(), (int)expected, text);
    }
}

DEVICE_TEST(wrong_channels_are_refused) {
    float x[COUNT];
    mp_attr attr = OP_INT("size", 0);
    op_case c = {.name = "LRN",
                 .version = 13,
                 .attrs = &attr,
                 .attr_count = 1,
                 .in = {image(false, x)},
                 .in_count = 1,
                 .out_count = 1};
    refuse(device, &c, MP_INVALID_ARGUMENT, "size is 0");
    c.name = "SpaceToDepth";
    attr = (mp_attr)OP_INT("blocksize", 2);
    refuse(device, &c, MP_INVALID_ARGUMENT, "does not divide by blocks of 2");
    attr = (mp_attr)OP_INT("blocksize", 0);
    refuse(device, &c, MP_INVALID_ARGUMENT, "blocksize is 0");
    c.name = "DepthToSpace";
    attr = (mp_attr)OP_INT("blocksize", 3);
    refuse(device, &c, MP_INVALID_ARGUMENT, "does not divide by blocks of 3");
    c.name = "BatchNormalization";
    c.version = 15;
    for (int i = 1; i < 5; i++) {
        c.in[i] = op_f32(x, CHANNELS);
    }
    c.in_count = 5;
    c.out_count = 3;
    refuse(device, &c, MP_UNSUPPORTED, "training_mode=1");
    c.out_count = 1;
    c.in[3] = op_f32(x, CHANNELS + 1);
    refuse(device, &c, MP_INVALID_ARGUMENT, "mean of shape 6 for 5 channels");
    c.name = "GridSample";
    c.version = 16;
    c.in[1] = op_f32(x, BATCH, 2, 2, 3);
    c.in_count = 2;
    refuse(device, &c, MP_INVALID_ARGUMENT, "grid of shape 2x2x2x3 do not fit");
    attr = (mp_attr){.name = "mode", .kind = MP_ATTR_STRING, .s = "warped"};
    c.in[1] = op_f32(x, BATCH, 2, 2, 2);
    refuse(device, &c, MP_INVALID_ARGUMENT, "mode 'warped' is not known");
    const mp_attr kernel = {
        .name = "kernel_shape", .kind = MP_ATTR_INTS, .ints = (const int64_t[]){2, 2}, .count = 2};
    op_case pool = {.domain = NHWC,
                    .name = "MaxPool",
                    .version = 12,
                    .attrs = &kernel,
                    .attr_count = 1,
                    .in = {image(true, x)},
                    .in_count = 1,
                    .out_count = 2};
    refuse(device, &pool, MP_UNSUPPORTED, "indices with channels last");
}
