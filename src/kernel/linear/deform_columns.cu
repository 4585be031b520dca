/* deform_columns.cu - for each output and tap of the window, the image between pixels where the tap
 * is moved to; 0 beyond the edge.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

K_FN TC pixel(const mp_deform_args *args, const T *image, int64_t row, int64_t column) {
    return row >= 0 && row < args->in_h && column >= 0 && column < args->in_w
               ? T_load(image[row * args->in_w + column])
               : 0;
}

K_FN TC sample(const mp_deform_args *args, const T *image, TC y, TC x) {
    if (!(y > -1 && x > -1 && y < (TC)args->in_h && x < (TC)args->in_w)) { /* nor NaN */
        return 0;
    }
    const TC top = K_M(floor)(y), left = K_M(floor)(x);
    const TC dy = y - top, dx = x - left;
    const int64_t row = (int64_t)top, column = (int64_t)left;
    return (1 - dy) * ((1 - dx) * pixel(args, image, row, column) +
                       dx * pixel(args, image, row, column + 1)) +
           dy * ((1 - dx) * pixel(args, image, row + 1, column) +
                 dx * pixel(args, image, row + 1, column + 1));
}

K_KERNEL(mp_deform_args, args) {
    const T *x = (const T *)args.x, *offset = (const T *)args.offset;
    const T *mask = (const T *)args.mask;
    T *columns = (T *)args.columns;
    const int64_t points = args.out_h * args.out_w, taps = args.kernel_h * args.kernel_w;
    const int64_t in_group = args.channels / args.offset_groups;
    K_GRID_LOOP(i, args.count) {
        const int64_t point = i % points, tap = i / points % taps, plane = i / points / taps;
        const int64_t channel = plane % args.channels, image = plane / args.channels;
        const int64_t out_y = point / args.out_w, out_x = point % args.out_w;
        const int64_t moved =
            (image * args.offset_groups + channel / in_group) * taps + tap; /* of the offsets */
        const TC base_y =
            (TC)(out_y * args.stride_h - args.pad_h + tap / args.kernel_w * args.dilation_h);
        const TC base_x =
            (TC)(out_x * args.stride_w - args.pad_w + tap % args.kernel_w * args.dilation_w);
        const TC y = base_y + T_load(offset[moved * 2 * points + point]);
        const TC at = base_x + T_load(offset[(moved * 2 + 1) * points + point]);
        TC value = sample(&args, x + plane * args.in_h * args.in_w, y, at);
        if (mask != 0) {
            value *= T_load(mask[moved * points + point]);
        }
        columns[i] = T_store(value);
    }
}
