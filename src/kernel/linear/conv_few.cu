/* conv_few.cu - a convolution of few outputs a channel, with what follows it: an image of some
 * pixels, or a chunk of a signal. Its weights are most of what is read, and each is used for all
 * K_PLACES outputs at once. A block makes a channel; its lanes go along the weights side by side.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/conv_tail.h"

enum { C_AHEAD = 4 }; /* weights of a lane whose loads are on their way at once */

/* A weight, and what it is multiplied by for each place. */
typedef struct c_tap {
    TC w;
    TC x[K_PLACES];
} c_tap;

/* Of the channel whose weights are at `w` and whose group begins at `x`; 0 behind the last one. */
K_FN c_tap c_load(const mp_conv_few_args *a, const T *x, const T *w, int32_t k) {
    const int is_one = k < a->depth;
    const uint32_t at = is_one ? (uint32_t)k : 0;
    const uint32_t line = k_divide(at, a->by_kernel_w);
    const uint32_t channel = k_divide(line, a->by_kernel_h);
    const int32_t down = (int32_t)(line - channel * (uint32_t)a->kernel_h) * a->dilation_h;
    const int32_t across = (int32_t)(at - line * (uint32_t)a->kernel_w) * a->dilation_w;
    const T *plane = x + (int64_t)channel * a->in_plane;
    c_tap tap;
    tap.w = is_one ? T_load(w[at]) : (TC)0;
    K_UNROLL
    for (int32_t p = 0; p < K_PLACES; p++) {
        const int32_t row = a->row[p] + down, column = a->column[p] + across;
        const int inside =
            is_one && p < a->places && row >= 0 && row < a->in_h && column >= 0 && column < a->in_w;
        tap.x[p] = inside ? T_load(plane[a->x_at[p] + (int64_t)row * a->in_w + column]) : (TC)0;
    }
    return tap;
}

K_FN void c_sum(const mp_conv_few_args *a, const T *x, const T *w, K_SUM *sums) {
    const int32_t lanes = (int32_t)blockDim.x;
    for (int32_t k = (int32_t)threadIdx.x; k < a->depth; k += C_AHEAD * lanes) {
        c_tap taps[C_AHEAD];
        K_UNROLL
        for (int32_t i = 0; i < C_AHEAD; i++) {
            taps[i] = c_load(a, x, w, k + i * lanes);
        }
        K_UNROLL
        for (int32_t i = 0; i < C_AHEAD; i++) {
            K_UNROLL
            for (int32_t p = 0; p < K_PLACES; p++) {
                sums[p] += (K_SUM)taps[i].w * (K_SUM)taps[i].x[p];
            }
        }
    }
}

K_FN void c_store(const mp_conv_few_args *a, int32_t channel, int32_t p, TC sum) {
    const int64_t at = a->y_at[p] + channel * a->out_plane;
    const TC bias = a->bias != 0 ? T_load(((const T *)a->bias)[channel]) : (TC)0;
    const TC more = a->residual != 0 ? T_load(((const T *)a->residual)[at]) : (TC)0;
    ((T *)a->y)[at] = T_store(c_activate(a->activation, a->alpha, a->beta, sum + bias + more));
}

K_BLOCK_KERNEL(mp_conv_few_args, args) {
    for (int32_t channel = (int32_t)blockIdx.x; channel < args.channels;
         channel += (int32_t)gridDim.x) {
        const int64_t first = (int64_t)(channel / args.group_out) * args.group_in;
        K_SUM sums[K_PLACES];
        K_UNROLL
        for (int32_t p = 0; p < K_PLACES; p++) {
            sums[p] = 0;
        }
        c_sum(&args, (const T *)args.x + first * args.in_plane,
              (const T *)args.w + (int64_t)channel * args.depth, sums);
        K_UNROLL
        for (int32_t p = 0; p < K_PLACES; p++) {
            sums[p] = k_block_sum(sums[p]);
        }
        if (threadIdx.x == 0) {
            K_UNROLL
            for (int32_t p = 0; p < K_PLACES; p++) {
                if (p < args.places) {
                    c_store(&args, channel, p, (TC)sums[p]);
                }
            }
        }
    }
}
