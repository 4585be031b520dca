/* depthwise_volume.cu - a convolution over three dimensions with channels first, each channel by
 * itself, with what follows it. A lane makes V_STRIP neighbours of a line; what several lanes read
 * of x comes from the cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/linear/conv_tail.h"

enum { V_STRIP = K_VOLUME_STRIP };

typedef struct v_work {
    int32_t plane, channel; /* the channel of which image, and of the weights */
    int32_t at[3];          /* the first output */
} v_work;

K_FN v_work v_find(const mp_volume_args *a, int64_t i) {
    v_work w;
    const uint32_t line = k_divide((uint32_t)i, a->by_strips);
    const uint32_t layer = k_divide(line, a->by_out[1]);
    const uint32_t plane = k_divide(layer, a->by_out[0]);
    w.at[2] = (int32_t)((uint32_t)i - line * (uint32_t)a->strips) * V_STRIP;
    w.at[1] = (int32_t)(line - layer * (uint32_t)a->out[1]);
    w.at[0] = (int32_t)(layer - plane * (uint32_t)a->out[0]);
    w.plane = (int32_t)plane;
    w.channel = (int32_t)(plane - k_divide(plane, a->by_channels) * (uint32_t)a->channels);
    return w;
}

/* Adds what a line of x gives by a line of the kernel. */
K_FN void v_line(const mp_volume_args *a, const T *line, const T *taps, int32_t first, TC *sums) {
    for (int32_t k = 0; k < a->kernel[2]; k++) {
        const TC tap = T_load(taps[k]);
        K_UNROLL
        for (int32_t t = 0; t < V_STRIP; t++) {
            const int32_t x = first + t * a->stride[2] + k * a->dilation[2];
            sums[t] += x >= 0 && x < a->in[2] ? T_load(line[x]) * tap : (TC)0;
        }
    }
}

K_FN void v_sum(const mp_volume_args *a, const v_work *w, TC *sums) {
    const int64_t line = a->in[2], layer = line * a->in[1];
    const T *x = (const T *)a->x + w->plane * layer * a->in[0];
    const T *taps =
        (const T *)a->w + (int64_t)w->channel * a->kernel[0] * a->kernel[1] * a->kernel[2];
    const int32_t first = w->at[2] * a->stride[2] - a->pad[2];
    for (int32_t d = 0; d < a->kernel[0]; d++) {
        const int32_t z = w->at[0] * a->stride[0] - a->pad[0] + d * a->dilation[0];
        for (int32_t h = 0; h < a->kernel[1] && z >= 0 && z < a->in[0]; h++) {
            const int32_t y = w->at[1] * a->stride[1] - a->pad[1] + h * a->dilation[1];
            if (y >= 0 && y < a->in[1]) {
                v_line(a, x + z * layer + y * line, taps + (d * a->kernel[1] + h) * a->kernel[2],
                       first, sums);
            }
        }
    }
}

K_KERNEL(mp_volume_args, args) {
    const T *bias = (const T *)args.bias, *residual = (const T *)args.residual;
    T *out = (T *)args.y;
    K_GRID_LOOP(i, args.count) {
        const v_work w = v_find(&args, i);
        const int64_t line = ((int64_t)w.plane * args.out[0] + w.at[0]) * args.out[1] + w.at[1];
        const int64_t at = line * args.out[2] + w.at[2];
        const TC start = bias ? T_load(bias[w.channel]) : (TC)0;
        TC sums[V_STRIP] = {0};
        v_sum(&args, &w, sums);
        for (int32_t t = 0; t < V_STRIP && w.at[2] + t < args.out[2]; t++) {
            const TC sum = sums[t] + start + (residual ? T_load(residual[at + t]) : (TC)0);
            out[at + t] = T_store(c_activate(args.activation, args.alpha, args.beta, sum));
        }
    }
}
