/* depthwise.cu - a convolution of images with channels last, each channel by itself, with what
 * follows it: any kernel, stride and dilation. A lane makes D_TILE neighbouring pixels of D_PACK
 * neighbouring channels. Those that networks mostly have are depthwise_tile.cu's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/conv_tail.h"

enum { D_PACK = K_DEPTHWISE_PACK, D_TILE = K_DEPTHWISE_TILE };

typedef struct K_ALIGN(sizeof(T) * D_PACK) d_pack {
    T lane[D_PACK];
} d_pack;

/* The same as they are computed with. */
typedef struct d_taps {
    TC lane[D_PACK];
} d_taps;

/* What a lane makes, and where. */
typedef struct d_work {
    int64_t image;
    int32_t row, column; /* of the first pixel */
    int32_t channel;     /* the first */
    int32_t left;        /* channels from there on, D_PACK at most */
} d_work;

K_FN d_work d_find(const mp_depthwise_args *a, int64_t i) {
    d_work w;
    const uint32_t line = k_divide((uint32_t)i, a->by_packs);
    const uint32_t pack = (uint32_t)i - line * (uint32_t)a->packs;
    const uint32_t row = k_divide(line, a->by_tiles);
    const uint32_t image = k_divide(row, a->by_lines);
    w.column = (int32_t)(line - row * (uint32_t)a->tiles) * D_TILE;
    w.row = (int32_t)(row - image * (uint32_t)a->lines);
    w.image = image;
    w.channel = (int32_t)pack * D_PACK;
    w.left = a->channels - w.channel < D_PACK ? a->channels - w.channel : D_PACK;
    return w;
}

/* At once where all rows of channels are aligned. */
K_FN d_pack d_read(const mp_depthwise_args *a, const T *at, int32_t left) {
    if (a->aligned) {
        return *(const d_pack *)at;
    }
    d_pack pack;
    for (int32_t k = 0; k < D_PACK; k++) {
        pack.lane[k] = k < left ? at[k] : T_store((TC)0);
    }
    return pack;
}

K_FN d_taps d_load(const mp_depthwise_args *a, const T *at, int32_t left) {
    const d_pack pack = d_read(a, at, left);
    d_taps loaded;
    K_UNROLL
    for (int32_t k = 0; k < D_PACK; k++) {
        loaded.lane[k] = T_load(pack.lane[k]);
    }
    return loaded;
}

/* Pixel `x` of the line, 0 beyond its ends: loaded in any case, so that all loads of a line are on
 * their way at once. */
K_FN d_taps d_pixel(const mp_depthwise_args *a, const T *line, int32_t x, int32_t left) {
    const int inside = x >= 0 && x < a->in_w;
    d_taps loaded = d_load(a, line + (int64_t)(inside ? x : 0) * a->x_pitch, left);
    K_UNROLL
    for (int32_t k = 0; k < D_PACK; k++) {
        loaded.lane[k] = inside ? loaded.lane[k] : (TC)0;
    }
    return loaded;
}

K_FN void d_add(TC *sums, const d_taps *x, const d_taps *w) {
    K_UNROLL
    for (int32_t k = 0; k < D_PACK; k++) {
        sums[k] += x->lane[k] * w->lane[k];
    }
}

/* Adds what line `y` of the input gives by row `tap` of the kernel. */
K_FN void d_line(const mp_depthwise_args *a, const d_work *work, const T *line, const T *taps,
                 TC (*sums)[D_PACK]) {
    for (int32_t k = 0; k < a->kernel_w; k++) {
        const d_taps w = d_load(a, taps + (int64_t)k * a->channels, work->left);
        K_UNROLL
        for (int32_t t = 0; t < D_TILE; t++) {
            const int32_t x = (work->column + t) * a->stride_w - a->pad_w + k * a->dilation_w;
            const d_taps pixel = d_pixel(a, line, x, work->left);
            d_add(sums[t], &pixel, &w);
        }
    }
}

K_FN void d_store(const mp_depthwise_args *a, const d_work *work, int32_t t, const TC *sums,
                  const d_pack *bias) {
    const int64_t pixel = (work->image * a->out_h + work->row) * a->out_w + work->column + t;
    const int64_t at = pixel * a->y_pitch + work->channel;
    d_pack made;
    d_pack residual = {0};
    if (a->residual != 0) {
        residual = d_read(a, (const T *)a->residual + at, work->left);
    }
    K_UNROLL
    for (int32_t k = 0; k < D_PACK; k++) {
        const TC sum = sums[k] + T_load(bias->lane[k]);
        made.lane[k] =
            T_store(c_activate(a->activation, a->alpha, a->beta, sum + T_load(residual.lane[k])));
    }
    T *out = (T *)a->y + at;
    if (a->aligned) {
        *(d_pack *)out = made;
        return;
    }
    for (int32_t k = 0; k < work->left; k++) {
        out[k] = made.lane[k];
    }
}

K_FN void d_make(const mp_depthwise_args *a, const d_work *work) {
    TC sums[D_TILE][D_PACK];
    d_pack bias = {0};
    for (int32_t t = 0; t < D_TILE; t++) {
        for (int32_t k = 0; k < D_PACK; k++) {
            sums[t][k] = 0;
        }
    }
    const T *image = (const T *)a->x + work->image * a->in_h * a->in_w * a->x_pitch;
    const T *taps = (const T *)a->w + work->channel;
    for (int32_t k = 0; k < a->kernel_h; k++) {
        const int32_t y = work->row * a->stride_h - a->pad_h + k * a->dilation_h;
        if (y >= 0 && y < a->in_h) {
            const T *line = image + (int64_t)y * a->in_w * a->x_pitch + work->channel;
            d_line(a, work, line, taps + (int64_t)k * a->kernel_w * a->channels, sums);
        }
    }
    if (a->bias != 0) {
        bias = d_read(a, (const T *)a->bias + work->channel, work->left);
    }
    K_UNROLL
    for (int32_t t = 0; t < D_TILE; t++) {
        if (work->column + t < a->out_w) {
            d_store(a, work, t, sums[t], &bias);
        }
    }
}

K_KERNEL(mp_depthwise_args, args) {
    K_GRID_LOOP(i, args.count) {
        const d_work work = d_find(&args, i);
        d_make(&args, &work);
    }
}
