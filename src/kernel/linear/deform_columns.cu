/* deform_columns.cu - for each output and tap of the window, the image between pixels where the tap
 * is moved to; 0 beyond the edge. A lane finds the four pixels of one tap and output, and reads
 * them in several channels, which all are moved alike.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/linear/linear_args.h"

/* What a lane has: an output, a tap and some channels of an image. */
typedef struct d_item {
    int64_t point, tap, moved; /* `moved`: which of the offsets */
    int64_t plane;             /* of the first channel, counted over all images */
    int32_t planes;
} d_item;

/* The pixels around a point, above and below, left and right of it, as far as they are in the
 * image. */
typedef struct d_corners {
    int64_t at; /* of the first in the plane, which may be outside */
    TC dy, dx;
    int inside[4];
} d_corners;

K_FN d_item d_item_of(const mp_deform_args *args, int64_t i) {
    const int64_t taps = args->kernel_h * args->kernel_w;
    const int64_t in_group = args->channels / args->offset_groups;
    const k_quotient point =
        k_quotient_of(i, args->out_h * args->out_w, args->by_points, args->wide);
    const k_quotient tap = k_quotient_of(point.whole, taps, args->by_taps, args->wide);
    const k_quotient piece = k_quotient_of(tap.whole, args->pieces, args->by_pieces, args->wide);
    const int64_t first = piece.rest * K_DEFORM_PLANES, left = in_group - first;
    d_item item;
    item.point = point.rest;
    item.tap = tap.rest;
    item.moved = piece.whole * taps + tap.rest;
    item.plane = piece.whole * in_group + first;
    item.planes = left < K_DEFORM_PLANES ? (int32_t)left : K_DEFORM_PLANES;
    return item;
}

/* None is inside where the point is further off than a pixel, or NaN. */
K_FN d_corners d_corners_of(const mp_deform_args *args, const d_item *item) {
    const T *offset = (const T *)args->offset;
    const int64_t points = args->out_h * args->out_w;
    const k_quotient out = k_quotient_of(item->point, args->out_w, args->by_out_w, args->wide);
    const k_quotient tap = k_quotient_of(item->tap, args->kernel_w, args->by_kernel_w, args->wide);
    const TC base_y = (TC)(out.whole * args->stride_h - args->pad_h + tap.whole * args->dilation_h);
    const TC base_x = (TC)(out.rest * args->stride_w - args->pad_w + tap.rest * args->dilation_w);
    const TC y = base_y + T_load(offset[item->moved * 2 * points + item->point]);
    const TC x = base_x + T_load(offset[(item->moved * 2 + 1) * points + item->point]);
    const int near = y > -1 && x > -1 && y < (TC)args->in_h && x < (TC)args->in_w;
    const TC top = near ? K_M(floor)(y) : 0, left = near ? K_M(floor)(x) : 0;
    const int64_t row = (int64_t)top, column = (int64_t)left;
    d_corners c;
    c.at = row * args->in_w + column;
    c.dy = near ? y - top : 0;
    c.dx = near ? x - left : 0;
    for (int k = 0; k < 4; k++) {
        const int64_t v = row + k / 2, u = column + k % 2;
        c.inside[k] = near && v >= 0 && v < args->in_h && u >= 0 && u < args->in_w;
    }
    return c;
}

K_FN TC d_sample(const T *image, int64_t in_w, const d_corners *c) {
    const T *top = image + c->at, *low = top + in_w;
    const TC p00 = c->inside[0] ? T_load(top[0]) : 0, p01 = c->inside[1] ? T_load(top[1]) : 0;
    const TC p10 = c->inside[2] ? T_load(low[0]) : 0, p11 = c->inside[3] ? T_load(low[1]) : 0;
    return (1 - c->dy) * ((1 - c->dx) * p00 + c->dx * p01) +
           c->dy * ((1 - c->dx) * p10 + c->dx * p11);
}

K_KERNEL(mp_deform_args, args) {
    const int64_t points = args.out_h * args.out_w, taps = args.kernel_h * args.kernel_w;
    const int64_t in_plane = args.in_h * args.in_w;
    K_GRID_LOOP(i, args.count) {
        const d_item item = d_item_of(&args, i);
        const d_corners corners = d_corners_of(&args, &item);
        const TC weight =
            args.mask ? T_load(((const T *)args.mask)[item.moved * points + item.point]) : (TC)1;
        const T *image = (const T *)args.x + item.plane * in_plane;
        T *column = (T *)args.columns + (item.plane * taps + item.tap) * points + item.point;
        if (item.planes == K_DEFORM_PLANES) { /* so that all are asked for at once */
            TC value[K_DEFORM_PLANES];
            K_UNROLL
            for (int k = 0; k < K_DEFORM_PLANES; k++) {
                value[k] = d_sample(image + k * in_plane, args.in_w, &corners);
            }
            K_UNROLL
            for (int k = 0; k < K_DEFORM_PLANES; k++) {
                column[k * taps * points] = T_store(value[k] * weight);
            }
        } else {
            for (int32_t k = 0; k < item.planes; k++) {
                const TC value = d_sample(image + k * in_plane, args.in_w, &corners);
                column[k * taps * points] = T_store(value * weight);
            }
        }
    }
}
