/* pool_window.h - where the windows of pools lie.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POOL_WINDOW_H
#define MP_KERNEL_POOL_WINDOW_H

#include "kernel/core/index.h"
#include "kernel/image/window_args.h"

/* The part of one dimension's window that lies in the input: `taps` positions from `first` on,
 * `dilation` apart; and how many positions count where padding does. */
typedef struct p_span {
    int32_t first, taps, padded;
} p_span;

K_FN int32_t p_steps(int32_t distance, int32_t step) { /* to cover a distance, rounded up */
    return step == 1 ? distance
                     : (int32_t)(((uint32_t)distance + (uint32_t)step - 1) / (uint32_t)step);
}

K_FN p_span p_window(const mp_pool_args *args, int32_t d, int32_t output) {
    const int32_t start = output * args->stride[d] - args->pad_begin[d];
    const int32_t step = args->dilation[d];
    const int32_t skipped = start < 0 ? p_steps(-start, step) : 0;
    const int32_t first = start + skipped * step;
    const int32_t rest = args->kernel[d] - skipped;
    const int32_t inside = first < args->in[d] ? p_steps(args->in[d] - first, step) : 0;
    const int32_t within = p_steps(args->in[d] + args->pad_end[d] - start, step);
    p_span span;
    span.first = first;
    span.taps = rest < inside ? rest : inside;
    span.padded = args->kernel[d] < within ? args->kernel[d] : within;
    return span;
}

/* The plane of output `i`, and its place there. */
K_FN int64_t p_place(const mp_pool_args *args, int64_t i, int32_t place[K_POOL_DIMS]) {
    for (int32_t d = K_POOL_DIMS - 1; d >= 0; d--) {
        const int64_t outer =
            args->wide ? i / args->out_dim[d] : (int64_t)k_divide((uint32_t)i, args->divider[d]);
        place[d] = (int32_t)(i - outer * args->out_dim[d]);
        i = outer;
    }
    return i;
}

/* The first tap of a line of the window, from the plane's first element on. */
K_FN int64_t p_line(const mp_pool_args *args, const p_span span[K_POOL_DIMS], int32_t a,
                    int32_t b) {
    const int64_t row = span[0].first + a * args->dilation[0];
    const int64_t column = span[1].first + b * args->dilation[1];
    return (row * args->in[1] + column) * args->in[2] + span[2].first;
}

#endif
