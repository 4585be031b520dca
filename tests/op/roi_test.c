/* roi_test.c - RoiAlign against loops: channels that are no whole pieces, regions beyond the image,
 * that end before they begin or lie nowhere, images that there are none of, pixels that are not
 * numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 2, REGIONS = 9, HEIGHT = 9, WIDTH = 11, PLANE = HEIGHT * WIDTH };

typedef struct form {
    int64_t channels, out_h, out_w, samples;
    bool largest, half, aligned;
} form;

static const double boxes[REGIONS][4] = {
    {0, 0, 6.5, 5},   {1.25, 2.5, 7.5, 8}, {-3, -2, 2, 12}, {4, 4, 4, 4},          {0, 0, 11, 9},
    {30, 30, 40, 40}, {2.5, 1, 3.25, 8},   {7, 6, 2, 1},    {1, (double)NAN, 5, 5}};
static const int64_t images[REGIONS] = {0, 1, 1, 0, 1, 0, IMAGES, 1, 0};

/* What is added of the four pixels around a point; gives false where it is beyond the edge. */
static bool shares(mp_dtype type, const void *x, int64_t first, double y, double at,
                   double out[4]) {
    if (!(y >= -1 && y <= HEIGHT && at >= -1 && at <= WIDTH)) {
        return false;
    }
    y = y < 0 ? 0 : y > HEIGHT - 1 ? HEIGHT - 1 : y;
    at = at < 0 ? 0 : at > WIDTH - 1 ? WIDTH - 1 : at;
    const int64_t row = (int64_t)y, column = (int64_t)at;
    const double dy = y - (double)row, dx = at - (double)column;
    for (int k = 0; k < 4; k++) {
        const int64_t v = row + k / 2 < HEIGHT ? row + k / 2 : HEIGHT - 1;
        const int64_t u = column + k % 2 < WIDTH ? column + k % 2 : WIDTH - 1;
        out[k] = (k / 2 == 0 ? 1 - dy : dy) * (k % 2 == 0 ? 1 - dx : dx) *
                 op_real(type, x, first + v * WIDTH + u);
    }
    return true;
}

typedef struct side {
    double start, bin;
    int64_t samples;
} side;

static side side_of(const form *f, double low, double high, int64_t bins) {
    const double half = f->half ? 0.5 : 0, length = high - low;
    side s = {low - half, (!f->half && length < 1 ? 1 : length) / (double)bins, f->samples};
    s.samples = f->samples > 0 ? f->samples : s.bin > 0 ? (int64_t)ceil(s.bin) : 0;
    return s;
}

static double bin_of(const form *f, mp_dtype type, const void *x, int64_t region, int64_t channel,
                     int64_t row, int64_t column) {
    const double *box = boxes[region];
    const side y = side_of(f, box[1], box[3], f->out_h), h = side_of(f, box[0], box[2], f->out_w);
    const int64_t points = y.samples * h.samples;
    double sum = 0, most = (double)-INFINITY;
    if (images[region] >= IMAGES) {
        return 0;
    }
    for (int64_t p = 0; p < points; p++) {
        const int64_t i = p / h.samples, j = p % h.samples;
        const double at_y = y.start + ((double)row + ((double)i + 0.5) / (double)y.samples) * y.bin;
        const double at_x =
            h.start + ((double)column + ((double)j + 0.5) / (double)h.samples) * h.bin;
        double share[4] = {0, 0, 0, 0};
        const int64_t first = (images[region] * f->channels + channel) * PLANE;
        shares(type, x, first, at_y, at_x, share);
        for (int k = 0; k < 4; k++) {
            sum += share[k];
            most = share[k] > most ? share[k] : most;
        }
    }
    return f->largest ? (points > 0 ? most : 0) : sum / (double)(points > 1 ? points : 1);
}

static void check(mp_device *device, mp_dtype type, form f) {
    const int64_t count = REGIONS * f.channels * f.out_h * f.out_w;
    void *x = op_numbers(type, 1, IMAGES * f.channels * PLANE);
    void *rois = op_memory(type, REGIONS * 4);
    for (int i = 0; i < REGIONS * 4; i++) {
        op_store_real(type, rois, i, boxes[i / 4][i % 4]);
    }
    if (!f.largest) {
        op_store_real(type, x, (f.channels - 1) * PLANE,
                      (double)NAN); /* of the last channel alone */
    }
    const mp_attr attrs[] = {
        OP_INT("output_height", f.out_h), OP_INT("output_width", f.out_w),
        OP_INT("sampling_ratio", f.samples), OP_TEXT("mode", f.largest ? "max" : "avg"),
        OP_TEXT("coordinate_transformation_mode", f.half ? "half_pixel" : "output_half_pixel")};
    op_case c = {.name = "RoiAlign",
                 .version = 22,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .align = f.aligned ? 16 : 1,
                 .skew = f.aligned ? 0 : 8,
                 .in = {OP_TENSOR(type, x, IMAGES, f.channels, HEIGHT, WIDTH),
                        OP_TENSOR(type, rois, REGIONS, 4), op_i64(images, REGIONS)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / f.out_w, plane = row / f.out_h;
        const double want =
            bin_of(&f, type, x, plane / f.channels, plane % f.channels, row % f.out_h, i % f.out_w);
        op_check_close(op_real(type, c.out[0].data, i), want, op_precision(type) + 1e-5, "bin", i);
    }
    op_close(device, &c);
    free(x);
    free(rois);
}

DEVICE_TEST(roi_align_against_loops) {
    static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    static const int64_t channels[] = {1, 7, 8, 9, 24};
    for (size_t k = 0; k < MP_COUNT_OF(channels); k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            for (int kind = 0; kind < 8; kind++) {
                check(device, types[t],
                      (form){.channels = channels[k],
                             .out_h = 3 + kind % 3,
                             .out_w = 1 + (int64_t)k,
                             .samples = kind % 4,
                             .largest = kind / 4 != 0,
                             .half = (k + t + (size_t)kind) % 2 != 0,
                             .aligned = k % 2 == 0});
            }
        }
    }
}
