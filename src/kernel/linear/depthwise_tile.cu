/* depthwise_tile.cu - a convolution of images with channels last, each channel by itself, by a
 * square kernel of side K_SIZE and of K_STRIDE, with what follows it.
 *
 * A block makes a tile of the image for a few channels. It asks for all pixels that the tile needs
 * and for the taps at once, and holds them in shared memory as they are computed with, zeros beyond
 * the image; so it waits for memory once, and a pixel comes from there for as many tiles as need
 * it, not for as many taps. Then a lane makes a strip of neighbouring pixels of two channels: each
 * pixel of a line is looked up once for all taps. Lines and pixels are loops with one copy of their
 * text, to keep it short.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/depthwise_packs.h"

enum {
    ROWS = K_DEPTHWISE_ROWS,
    COLUMNS = K_DEPTHWISE_COLUMNS,
    STRIP = K_DEPTHWISE_STRIP,
    STRIPS = COLUMNS / STRIP,
    CHANNELS = K_DEPTHWISE_CHANNELS,
    PAIR = K_DEPTHWISE_PAIR,
    PAIRS = CHANNELS / PAIR,
    PACK = K_DEPTHWISE_PACK,
    PACKS = CHANNELS / PACK,
    PITCH = K_DEPTHWISE_PITCH(K_STRIDE),
    IN_ROWS = K_DEPTHWISE_SIDE(ROWS, K_SIZE, K_STRIDE),
    IN_COLUMNS = K_DEPTHWISE_SIDE(COLUMNS, K_SIZE, K_STRIDE),
    PIXELS = IN_ROWS * IN_COLUMNS, /* that are held; behind them the taps, then the bias */
    TAPS = K_SIZE * K_SIZE,
};

/* Packs on their way to a lane. */
#if K_HOST
#define LANES blockDim.x
enum { TAPS_AT_ONCE = 1, AT_ONCE = 1 };
#else
enum {
    LANES = K_DEPTHWISE_LANES,
    TAPS_AT_ONCE = ((TAPS + 1) * PACKS + LANES - 1) / LANES,
    TURNS = (PIXELS * PACKS + LANES - 1) / LANES,
    BATCHES = (TURNS + 7) / 8,
    AT_ONCE = (TURNS + BATCHES - 1) / BATCHES,
};
#endif

/* A block's share: a tile of an image, and its first channel. */
typedef struct d_tile {
    int64_t image;
    int32_t row, column, channel; /* the first */
} d_tile;

K_FN d_tile d_find(const mp_depthwise_args *a, uint32_t i) {
    d_tile t;
    const uint32_t place = k_divide(i, a->by_packs);
    const uint32_t line = k_divide(place, a->by_tiles);
    const uint32_t image = k_divide(line, a->by_lines);
    t.channel = (int32_t)(i - place * (uint32_t)a->packs) * CHANNELS;
    t.column = (int32_t)(place - line * (uint32_t)a->tiles) * COLUMNS;
    t.row = (int32_t)(line - image * (uint32_t)a->lines) * ROWS;
    t.image = image;
    return t;
}

/* ---- what is held ---- */

/* Where pixel `p` of the tile lies, from the first one on, whose place need not be in the image; -1
 * where this one is not. A few lines of an image have less than 2^31 elements. */
K_FN int32_t d_pixel(const mp_depthwise_args *a, const d_tile *t, uint32_t p) {
    const uint32_t row = p / IN_COLUMNS, column = p - row * IN_COLUMNS;
    const uint32_t y = (uint32_t)(t->row * K_STRIDE - a->pad_h) + row; /* wraps, and back */
    const uint32_t x = (uint32_t)(t->column * K_STRIDE - a->pad_w) + column;
    const int inside = (p < PIXELS) & (y < (uint32_t)a->in_h) & (x < (uint32_t)a->in_w);
    return inside ? (int32_t)((row * (uint32_t)a->in_w + column) * (uint32_t)a->x_pitch) : -1;
}

/* The first channel of the tile in its first pixel. */
K_FN const T *d_origin(const mp_depthwise_args *a, const d_tile *t) {
    const int64_t y = t->row * K_STRIDE - a->pad_h, x = t->column * K_STRIDE - a->pad_w;
    return (const T *)a->x + (((t->image * a->in_h + y) * a->in_w + x) * a->x_pitch + t->channel);
}

/* The first channel of the tile in tap `k`, or in the bias behind the taps, which may be NULL. */
K_FN const T *d_tap(const mp_depthwise_args *a, const d_tile *t, uint32_t k) {
    const T *from = (const T *)(k < TAPS ? a->w : a->bias);
    return from ? from + (k < TAPS ? (int64_t)k * a->channels : 0) + t->channel : 0;
}

K_FN void d_hold(float *to, d_pack pack) {
    float value[PACK];
    K_UNROLL
    for (int32_t j = 0; j < PACK / K_WORD; j++) {
        T_unpack(pack.word[j], value + j * K_WORD);
    }
    K_UNROLL
    for (int32_t j = 0; j < PACK; j++) {
        ((d_two *)to)[j / PAIR].at[j % PAIR] = value[j];
    }
}

K_FN void d_hold_taps(const mp_depthwise_args *a, const d_tile *t, float *held) {
    K_ONE_COPY
    for (uint32_t first = threadIdx.x; first < (TAPS + 1) * PACKS; first += TAPS_AT_ONCE * LANES) {
        d_pack pack[TAPS_AT_ONCE];
        K_UNROLL
        for (uint32_t k = 0; k < TAPS_AT_ONCE; k++) {
            const uint32_t i = first + k * LANES, c = i % PACKS * PACK;
            const T *from = d_tap(a, t, i / PACKS);
            pack[k] = d_nothing();
            if (from && i < (TAPS + 1) * PACKS && t->channel + (int32_t)c < a->channels) {
                pack[k] = *(const d_pack *)(from + c);
            }
        }
        K_UNROLL
        for (uint32_t k = 0; k < TAPS_AT_ONCE; k++) {
            const uint32_t i = first + k * LANES;
            if (i < (TAPS + 1) * PACKS) {
                d_hold(held + (PIXELS + i / PACKS) * PITCH + i % PACKS * PACK, pack[k]);
            }
        }
    }
}

K_FN void d_fill(const mp_depthwise_args *a, const d_tile *t, float *held) {
    const T *origin = d_origin(a, t);
    K_ONE_COPY
    for (uint32_t first = threadIdx.x; first < PIXELS * PACKS; first += AT_ONCE * LANES) {
        d_pack pack[AT_ONCE];
        K_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t i = first + k * LANES, c = i % PACKS * PACK;
            const int32_t at = d_pixel(a, t, i / PACKS);
            pack[k] = d_nothing();
            if (at >= 0 && t->channel + (int32_t)c < a->channels) {
                pack[k] = *(const d_pack *)(origin + ((uint32_t)at + c));
            }
        }
        if (first == threadIdx.x) { /* while those are on their way */
            d_hold_taps(a, t, held);
        }
        K_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t i = first + k * LANES;
            if (i < PIXELS * PACKS) {
                d_hold(held + i / PACKS * PITCH + i % PACKS * PACK, pack[k]);
            }
        }
    }
}

/* The same where packs are not aligned. */
K_FN void d_fill_apart(const mp_depthwise_args *a, const d_tile *t, float *held) {
    const T *origin = d_origin(a, t);
    K_ONE_COPY
    for (uint32_t i = threadIdx.x; i < (PIXELS + TAPS + 1) * CHANNELS; i += LANES) {
        const uint32_t place = i / CHANNELS, c = i % CHANNELS;
        const int32_t at = place < PIXELS ? d_pixel(a, t, place) : 0;
        const T *from = place < PIXELS ? origin + at : d_tap(a, t, place - PIXELS);
        const int has = at >= 0 && from && t->channel + (int32_t)c < a->channels;
        held[place * PITCH + c] = has ? T_load(from[c]) : 0;
    }
}

/* ---- what is made of it ---- */

/* The sums of a strip whose first pixel needs what is held from `in` on. */
K_FN void d_sum(const float *in, const float *taps, d_two *sums) {
    K_UNROLL
    for (int32_t t = 0; t < STRIP; t++) {
        sums[t].at[0] = 0;
        sums[t].at[1] = 0;
    }
    K_ONE_COPY
    for (int32_t y = 0; y < K_SIZE; y++) {
        d_two w[K_SIZE];
        K_UNROLL
        for (int32_t k = 0; k < K_SIZE; k++) {
            w[k] = *(const d_two *)(taps + (y * K_SIZE + k) * PITCH);
        }
        K_UNROLL
        for (int32_t c = 0; c < K_DEPTHWISE_SIDE(STRIP, K_SIZE, K_STRIDE); c++) {
            const d_two pixel = *(const d_two *)(in + (y * IN_COLUMNS + c) * PITCH);
            K_UNROLL
            for (int32_t t = 0; t < STRIP; t++) {
                const int32_t tap = c - t * K_STRIDE;
                if (tap >= 0 && tap < K_SIZE) {
                    sums[t].at[0] += pixel.at[0] * w[tap].at[0];
                    sums[t].at[1] += pixel.at[1] * w[tap].at[1];
                }
            }
        }
    }
}

K_FN void d_put(const mp_depthwise_args *a, T *y, int32_t left, d_two made) {
    if (a->aligned) {
        d_put_pair((d_pair *)y, made.at);
        return;
    }
    y[0] = T_store(made.at[0]);
    if (left > 1) {
        y[1] = T_store(made.at[1]);
    }
}

/* The pixels of a strip one after the other: each finds its sums in the same place. */
K_FN void d_store(const mp_depthwise_args *a, int64_t first, int32_t pixels, int32_t left,
                  d_two bias, d_two *sums) {
    const T *residual = (const T *)a->residual;
    K_ONE_COPY
    for (int32_t p = 0; p < pixels; p++) {
        const int64_t at = first + (int64_t)p * a->y_pitch;
        d_two made;
        K_UNROLL
        for (int32_t i = 0; i < PAIR; i++) {
            const float more = residual && i < left ? T_load(residual[at + i]) : 0;
            made.at[i] =
                c_activate(a->activation, a->alpha, a->beta, sums[0].at[i] + bias.at[i] + more);
        }
        d_put(a, (T *)a->y + at, left, made);
        K_UNROLL
        for (int32_t t = 0; t + 1 < STRIP; t++) {
            sums[t] = sums[t + 1];
        }
    }
}

/* Strip `unit` of the tile. Lanes have channels side by side, then strips, then lines. */
K_FN void d_make(const mp_depthwise_args *a, const d_tile *t, const float *held, uint32_t unit) {
    const int32_t c = (int32_t)(unit % PAIRS) * PAIR, line = (int32_t)(unit / (PAIRS * STRIPS));
    const int32_t begin = (int32_t)(unit / PAIRS % STRIPS) * STRIP;
    const int32_t row = t->row + line, column = t->column + begin;
    const int32_t pixels = a->out_w - column < STRIP ? a->out_w - column : STRIP;
    const int32_t left = a->channels - t->channel - c;
    d_two sums[STRIP];
    if (row >= a->out_h || left <= 0) {
        return;
    }
    d_sum(held + (line * IN_COLUMNS + begin) * K_STRIDE * PITCH + c, held + PIXELS * PITCH + c,
          sums);
    const int64_t pixel = (t->image * a->out_h + row) * a->out_w + column;
    d_store(a, pixel * a->y_pitch + t->channel + c, pixels, left,
            *(const d_two *)(held + (PIXELS + TAPS) * PITCH + c), sums);
}

K_BLOCK_KERNEL_UP_TO(K_DEPTHWISE_LANES, mp_depthwise_args, args) {
    K_SHARED(float, held);
    for (int64_t i = blockIdx.x; i < args.count; i += gridDim.x) {
        const d_tile t = d_find(&args, (uint32_t)i);
        if (args.aligned) {
            d_fill(&args, &t, held);
        } else {
            d_fill_apart(&args, &t, held);
        }
        __syncthreads();
        for (uint32_t unit = threadIdx.x; unit < K_DEPTHWISE_LANES; unit += LANES) {
            d_make(&args, &t, held, unit);
        }
        __syncthreads(); /* before the next tile is held */
    }
}
