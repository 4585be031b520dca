/* deform_test.c - DeformConv against loops: channels that are no whole pieces, groups, masks, taps
 * at the edges and beyond them, offsets that are not numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { OUTPUTS = 6, KERNEL_H = 2, KERNEL_W = 3, TAPS = KERNEL_H * KERNEL_W };

typedef struct deform {
    int64_t batch, channels, groups, offset_groups;
    int64_t in_h, in_w, stride, dilation, pad;
    bool masked, aligned;
    int64_t out_h, out_w;
} deform;

enum { X, W, OFFSET, BIAS, MASK, INPUTS };

static double pixel(const deform *d, mp_dtype type, const void *x, int64_t plane, int64_t row,
                    int64_t column) {
    return row >= 0 && row < d->in_h && column >= 0 && column < d->in_w
               ? op_real(type, x, (plane * d->in_h + row) * d->in_w + column)
               : 0;
}

static double between(const deform *d, mp_dtype type, const void *x, int64_t plane, double y,
                      double at) {
    if (!(y > -1 && at > -1 && y < (double)d->in_h && at < (double)d->in_w)) {
        return 0;
    }
    const int64_t row = (int64_t)floor(y), column = (int64_t)floor(at);
    const double dy = y - floor(y), dx = at - floor(at);
    return (1 - dy) * (1 - dx) * pixel(d, type, x, plane, row, column) +
           (1 - dy) * dx * pixel(d, type, x, plane, row, column + 1) +
           dy * (1 - dx) * pixel(d, type, x, plane, row + 1, column) +
           dy * dx * pixel(d, type, x, plane, row + 1, column + 1);
}

/* One tap of a channel, as it goes into the product. */
static double tap_of(const deform *d, mp_dtype type, void *const *in, int64_t image,
                     int64_t channel, int64_t tap, int64_t point) {
    const int64_t points = d->out_h * d->out_w;
    const int64_t group = channel / (d->channels / d->offset_groups);
    const int64_t moved = (image * d->offset_groups + group) * TAPS + tap;
    const int64_t top = point / d->out_w * d->stride - d->pad + tap / KERNEL_W * d->dilation;
    const int64_t left = point % d->out_w * d->stride - d->pad + tap % KERNEL_W * d->dilation;
    const double y = (double)top + op_real(type, in[OFFSET], moved * 2 * points + point);
    const double x = (double)left + op_real(type, in[OFFSET], (moved * 2 + 1) * points + point);
    const double value = between(d, type, in[X], image * d->channels + channel, y, x);
    return d->masked ? value * op_real(type, in[MASK], moved * points + point) : value;
}

static double output_of(const deform *d, mp_dtype type, void *const *in, int64_t image,
                        int64_t output, int64_t point) {
    const int64_t each = d->channels / d->groups, group = output / (OUTPUTS / d->groups);
    double sum = op_real(type, in[BIAS], output);
    for (int64_t c = 0; c < each; c++) {
        for (int64_t tap = 0; tap < TAPS; tap++) {
            sum += op_real(type, in[W], (output * each + c) * TAPS + tap) *
                   op_rounded(type, tap_of(d, type, in, image, group * each + c, tap, point));
        }
    }
    return sum;
}

static void check(mp_device *device, mp_dtype type, deform d) {
    d.out_h = (d.in_h + 2 * d.pad - d.dilation * (KERNEL_H - 1) - 1) / d.stride + 1;
    d.out_w = (d.in_w + 2 * d.pad - d.dilation * (KERNEL_W - 1) - 1) / d.stride + 1;
    const int64_t points = d.out_h * d.out_w, moved = d.batch * d.offset_groups * TAPS * points;
    const int64_t counts[INPUTS] = {d.batch * d.channels * d.in_h * d.in_w,
                                    OUTPUTS * d.channels / d.groups * TAPS, 2 * moved, OUTPUTS,
                                    moved};
    void *in[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        in[i] = op_numbers(type, (uint64_t)i + 1, counts[i]);
    }
    for (int64_t i = 0; i < counts[OFFSET]; i += 5) { /* others are whole or halves */
        op_store_real(type, in[OFFSET], i, op_real(type, in[OFFSET], i) * 1.375 + 0.125);
    }
    op_store_real(type, in[OFFSET], 0, (double)NAN);
    op_store_real(type, in[OFFSET], counts[OFFSET] - 1, (double)-INFINITY);
    op_store_real(type, in[OFFSET], counts[OFFSET] / 2, 60000);
    const int64_t kernel[] = {KERNEL_H, KERNEL_W}, stride[] = {d.stride, d.stride};
    const int64_t dilation[] = {d.dilation, d.dilation}, pads[] = {d.pad, d.pad, d.pad, d.pad};
    const mp_attr attrs[] = {
        {.name = "kernel_shape", .kind = MP_ATTR_INTS, .ints = kernel, .count = 2},
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = stride, .count = 2},
        {.name = "dilations", .kind = MP_ATTR_INTS, .ints = dilation, .count = 2},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = pads, .count = 4},
        OP_INT("group", d.groups),
        OP_INT("offset_group", d.offset_groups)};
    op_case c = {
        .name = "DeformConv",
        .version = 22,
        .attrs = attrs,
        .attr_count = MP_COUNT_OF(attrs),
        .align = d.aligned ? 16 : 1,
        .skew = d.aligned ? 0 : (uint32_t)mp_dtype_size(type),
        .in = {OP_TENSOR(type, in[X], d.batch, d.channels, d.in_h, d.in_w),
               OP_TENSOR(type, in[W], OUTPUTS, d.channels / d.groups, KERNEL_H, KERNEL_W),
               OP_TENSOR(type, in[OFFSET], d.batch, d.offset_groups * 2 * TAPS, d.out_h, d.out_w),
               OP_TENSOR(type, in[BIAS], OUTPUTS),
               OP_TENSOR(type, in[MASK], d.batch, d.offset_groups * TAPS, d.out_h, d.out_w)},
        .in_count = d.masked ? INPUTS : MASK,
        .out_count = 1};
    op_run(device, &c);
    const double bound = (type == MP_F64 ? 1e-12 : 2e-5) + 2 * op_precision(type);
    for (int64_t i = 0; i < d.batch * OUTPUTS * points; i++) {
        const double want =
            output_of(&d, type, in, i / points / OUTPUTS, i / points % OUTPUTS, i % points);
        op_check_close(op_real(type, c.out[0].data, i), want, bound, "deformed", i);
    }
    op_close(device, &c);
    for (int i = 0; i < INPUTS; i++) {
        free(in[i]);
    }
}

DEVICE_TEST(deform_conv_against_loops) {
    static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    static const deform all[] = {
        {.batch = 2, .channels = 4, .groups = 1, .offset_groups = 1, .in_h = 7, .in_w = 8},
        {.batch = 1, .channels = 8, .groups = 2, .offset_groups = 1, .in_h = 5, .in_w = 5},
        {.batch = 2, .channels = 18, .groups = 1, .offset_groups = 2, .in_h = 4, .in_w = 9},
        {.batch = 3, .channels = 34, .groups = 2, .offset_groups = 2, .in_h = 6, .in_w = 4},
        {.batch = 1, .channels = 3, .groups = 3, .offset_groups = 3, .in_h = 9, .in_w = 3},
        {.batch = 1, .channels = 16, .groups = 1, .offset_groups = 1, .in_h = 2, .in_w = 3},
    };
    for (size_t k = 0; k < MP_COUNT_OF(all); k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            deform d = all[k];
            d.stride = 1 + (int64_t)(k + t) % 2;
            d.dilation = 1 + (int64_t)t % 2;
            d.pad = 1;
            d.masked = (k + t) % 3 != 0;
            d.aligned = (k + t) % 2 == 0;
            check(device, types[t], d);
        }
    }
}
