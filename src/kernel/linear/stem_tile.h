/* stem_tile.h - what a block of conv_stem.cu holds in shared memory: where the words of a step of
 * the sum lie, the weights as tensor cores want them, and the part of the image that a tile sees.
 *
 * A step is K_STEM_STEP words along the sum. Lane (g, t) of a warp (warp_matrix.h) takes words t
 * and t + 4 of each, of weights of its rows and of pixels of its columns. Row g of the products'
 * upper and lower half are neighbouring channels, so that a lane's channels lie side by side:
 * channel (g * EACH + 2 i + h) of a group is row g + 8 h of product i.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STEM_TILE_H
#define MP_KERNEL_STEM_TILE_H

#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/prelude.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/linear/linear_args.h"

#define LANES ((int32_t)blockDim.x)
enum {
    WARP = 32,
    EACH = K_WIDE / 8,  /* channels of a lane */
    HIGH = K_WIDE / 16, /* products of a group of channels */
    PRODUCT = 4 * WARP, /* words of the weights of one */
};

/* The first output of a tile, and what that sees first. */
typedef struct s_tile {
    int32_t image, row, column;
    int32_t top, left;
} s_tile;

K_FN s_tile s_find(const mp_stem_args *a, int32_t i) {
    s_tile t;
    const uint32_t line = k_divide((uint32_t)i, a->by_across);
    t.image = (int32_t)k_divide(line, a->by_down);
    t.row = ((int32_t)line - t.image * a->down) * (a->pixels >> a->columns_log);
    t.column = (i - (int32_t)line * a->across) << a->columns_log;
    t.top = t.row * a->stride_h - a->pad_h;
    t.left = t.column * a->stride_w - a->pad_w;
    return t;
}

#if K_WARP_MATRIX

typedef struct K_ALIGN(16) s_four {
    uint32_t at[4];
} s_four;

typedef struct s_held {
    uint32_t *table, *weights, *image;
    float *bias;     /* of all groups */
    int32_t *places; /* two of each element of a line */
} s_held;

K_FN s_held s_hold(const mp_stem_args *a, uint32_t *shared) {
    s_held held;
    held.table = shared;
    held.weights = held.table + a->steps * K_STEM_TABLE;
    held.bias = (float *)(held.weights + a->groups * a->steps * HIGH * PRODUCT);
    held.places = (int32_t *)(held.bias + a->groups * K_WIDE);
    held.image = (uint32_t *)(held.places + K_STEM_PLACES(a->in_columns * a->pixel));
    return held;
}

/* Where column `e` of what a tile sees lies in its row. */
K_FN int32_t s_split(const mp_stem_args *a, int32_t e) {
    const int32_t line = (int32_t)k_divide((uint32_t)e, a->by_stride_w);
    return (e - line * a->stride_w) * a->rest + line;
}

/* ---- once a block ---- */

/* Of lane t in each step: where its two words lie from a pixel's first one on, and which bits of
 * them count: what lies behind a row of taps has no weight, but may be infinite. */
K_FN void s_make_table(const mp_stem_args *a, const s_held *held) {
    K_ONE_COPY
    for (int32_t q = (int32_t)threadIdx.x; q < a->steps * K_STEM_STEP; q += LANES) {
        const int32_t line = (int32_t)k_divide((uint32_t)q, a->by_line_words);
        const int32_t channel = (int32_t)k_divide((uint32_t)line, a->by_kernel_h);
        const int32_t tap = (q - line * a->line_words) * K_WORD;
        const int32_t row = (line - channel * a->kernel_h) * a->dilation_h;
        const int is_one = q < a->words, is_whole = tap + K_WORD <= a->kernel_w;
        uint32_t *to =
            held->table + q / K_STEM_STEP * K_STEM_TABLE + q % 4 * 4 + q % K_STEM_STEP / 4;
        to[0] =
            is_one
                ? (uint32_t)(channel * a->plane + row * a->pitch + s_split(a, tap * a->dilation_w))
                : 0u;
        to[2] = !is_one ? 0u : is_whole ? 0xffffffffu : 0xffffu;
    }
}

K_FN void s_clear_weights(const mp_stem_args *a, const s_held *held) {
    s_four *to = (s_four *)held->weights;
    const s_four none = {{0, 0, 0, 0}};
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < a->groups * a->steps * HIGH * WARP; i += LANES) {
        to[i] = none;
    }
}

/* Where tap `k`, as it lies in w, of channel 0 belongs, in elements. */
K_FN int32_t s_tap_place(const mp_stem_args *a, int32_t k) {
    const uint32_t line = k_divide((uint32_t)k, a->w_last ? a->by_in_channels : a->by_kernel_w);
    const uint32_t block = k_divide(line, a->w_last ? a->by_kernel_w : a->by_kernel_h);
    int32_t channel = (int32_t)block, row = (int32_t)line - channel * a->kernel_h;
    int32_t tap = k - (int32_t)line * a->kernel_w;
    if (a->w_last) {
        channel = k - (int32_t)line * a->in_channels;
        row = (int32_t)block;
        tap = (int32_t)line - row * a->kernel_w;
    }
    const int32_t q = (channel * a->kernel_h + row) * a->line_words + tap / K_WORD;
    const int32_t word = q / K_STEM_STEP * HIGH * PRODUCT + q % 4 * 4 + q % K_STEM_STEP / 4 * 2;
    return word * K_WORD + tap % K_WORD;
}

/* From there to the same tap of channel `n`. That of n + j, where n is a multiple of 16 and j less,
 * is the sum of both. */
K_FN int32_t s_channel_place(const mp_stem_args *a, int32_t n) {
    const int32_t group = n / K_WIDE, m = n % K_WIDE;
    const int32_t product = group * a->steps * HIGH + m % EACH / 2;
    return (product * PRODUCT + m / EACH * 16 + m % 2) * K_WORD;
}

/* A weight as it is multiplied. */
#define s_weight K_JOIN(s_weight_, K_T0)
K_FN float s_weight_f32(float x) {
    return k_float_of_bits(k_tf32(x));
}

K_FN k_f16 s_weight_f16(k_f16 x) {
    return x;
}

K_FN k_bf16 s_weight_bf16(k_bf16 x) {
    return x;
}

/* A lane takes a tap of some channels at a time, whose loads are on their way at once: they are not
 * under the condition of the stores, or each store would wait for its own. */
K_FN void s_fill_weights(const mp_stem_args *a, const s_held *held) {
    enum { SOME = 16 };
    const T *w = (const T *)a->w;
    T *to = (T *)held->weights;
    const int32_t units = a->taps * ((a->channels + SOME - 1) / SOME);
    K_ONE_COPY
    for (int32_t unit = (int32_t)threadIdx.x; unit < units; unit += LANES) {
        const int32_t some = (int32_t)k_divide((uint32_t)unit, a->by_taps);
        const int32_t k = unit - some * a->taps, first = some * SOME;
        const int32_t left = a->channels - first;
        const int32_t place = s_tap_place(a, k) + s_channel_place(a, first);
        T raw[SOME];
        K_UNROLL
        for (int32_t j = 0; j < SOME; j++) {
            raw[j] = w[first * a->taps + k + (j < left ? j * a->taps : 0)];
        }
        K_UNROLL
        for (int32_t j = 0; j < SOME; j++) {
            if (j < left) {
                to[place + s_channel_place(a, j)] = s_weight(raw[j]);
            }
        }
    }
    K_ONE_COPY
    for (int32_t n = (int32_t)threadIdx.x; n < a->groups * K_WIDE; n += LANES) {
        const int is_one = a->bias != 0 && n < a->channels;
        held->bias[n] = is_one ? T_load(((const T *)a->bias)[n]) : 0;
    }
}

/* Elements that a lane loads of a line at once, and those before the line with which they begin. */
K_FN int32_t s_each(const mp_stem_args *a) {
    return a->loads_words ? K_WORD : 1;
}

K_FN int32_t s_skew(const mp_stem_args *a) {
    return -a->pad_w * a->pixel & (s_each(a) - 1); /* as of all tiles, which begin at whole runs */
}

/* Where each element of a line belongs in the first one, in bytes: once as what a tap sees, and
 * once as what the tap before it has for its neighbour. -1: nowhere. */
K_FN void s_make_places(const mp_stem_args *a, const s_held *held) {
    const int32_t length = a->in_columns * a->pixel, skew = s_skew(a);
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < K_STEM_PLACES(length) / 2; i += LANES) {
        const int32_t q = i - skew, is = q >= 0 && q < length, at = is ? q : 0;
        const int32_t column = (int32_t)k_divide((uint32_t)at, a->by_pixel);
        const int32_t plane = (at - column * a->pixel) * a->plane, before = column - a->dilation_w;
        const int is_second = is && before >= 0;
        held->places[2 * i] = is ? (plane + s_split(a, column)) * 4 : -1;
        held->places[2 * i + 1] = is_second ? (plane + s_split(a, before)) * 4 + 2 : -1;
    }
}

/* ---- once a tile ---- */

/* Elements of `raw` of the line that begins at `to`, by where they belong in it. */
K_FN void s_keep(unsigned char *to, const int32_t *places, int32_t each, uint32_t raw) {
    K_UNROLL
    for (int32_t e = 0; e < each; e++) {
        const int32_t first = places[2 * e], second = places[2 * e + 1];
        const uint16_t half = (uint16_t)(raw >> 16 * e);
        if (first >= 0 && K_WORD == 1) {
            *(uint32_t *)(to + first) = k_tf32(k_float_of_bits(raw));
        }
        if (first >= 0 && K_WORD > 1) {
            *(uint16_t *)(to + first) = half;
        }
        if (second >= 0 && K_WORD > 1) {
            *(uint16_t *)(to + second) = half;
        }
    }
}

K_FN uint32_t s_read(const T *at, int32_t each) {
    return sizeof(T) == 2 && each == 1 ? *(const uint16_t *)at : *(const uint32_t *)at;
}

/* Holds what the tile sees, zeros beyond the image. With `each` elements of a line a load: a word
 * of them where all rows begin at multiples of one, and end there. Warps take lines in turn, with
 * few lines also parts of them; behind the last line each warp has one that nobody reads. */
K_FN void s_fill_image(const mp_stem_args *a, const s_held *held, const s_tile *t, int32_t each) {
    enum { AHEAD = 8 }; /* loads of a lane on their way */
    const int32_t warp = (int32_t)threadIdx.x / WARP, lane = (int32_t)threadIdx.x % WARP;
    const int32_t aside = warp & ((1 << a->aside_log) - 1), down = LANES / WARP >> a->aside_log;
    const int32_t left = t->left * a->pixel, skew = s_skew(a);
    const int32_t length = a->in_columns * a->pixel, turn = WARP * each << a->aside_log;
    const T *image = (const T *)a->x + t->image * a->x_image;
    K_ONE_COPY
    for (int32_t q = (aside * WARP + lane) * each - skew; q < length; q += turn) {
        const int is_column = (uint32_t)(left + q) < (uint32_t)(a->in_w * a->pixel);
        int32_t places[2 * K_WORD];
        K_UNROLL
        for (int32_t e = 0; e < 2 * each; e++) {
            places[e] = held->places[2 * (q + skew) + e];
        }
        K_ONE_COPY
        for (int32_t first = warp >> a->aside_log; first < a->lines; first += AHEAD * down) {
            uint32_t raw[AHEAD], is[AHEAD]; /* all bits, or none */
            K_UNROLL
            for (int32_t j = 0; j < AHEAD; j++) {
                const int32_t line = first + j * down;
                const int32_t plane = (int32_t)k_divide((uint32_t)line, a->by_in_rows);
                const int32_t y = t->top + line - plane * a->in_rows;
                const uint32_t at = (uint32_t)plane * (uint32_t)a->x_plane +
                                    (uint32_t)y * (uint32_t)a->x_row + (uint32_t)(left + q);
                is[j] = is_column & (line < a->lines) & ((uint32_t)y < (uint32_t)a->in_h)
                            ? 0xffffffffu
                            : 0u;
                raw[j] = s_read(image + (at & is[j]), each); /* the first where there is none */
            }
            K_UNROLL
            for (int32_t j = 0; j < AHEAD; j++) {
                const int32_t line =
                    first + j * down < a->lines ? first + j * down : a->lines + warp;
                s_keep((unsigned char *)(held->image + line * a->pitch), places, each,
                       raw[j] & is[j]);
            }
        }
    }
}

#endif
#endif
