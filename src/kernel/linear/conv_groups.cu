/* conv_groups.cu - a convolution in groups whose channels come last, with what follows it: groups
 * of some channels each, which libraries take one by one, or turn the image for.
 *
 * A block holds the weights of a part of a group; its warps make one tile of pixels after the
 * other. Rows of the products are pixels and columns channels of y. Of a pixel's channels lane t of
 * four has a quarter that lies side by side, so that it reads words and stores words: which
 * channels a product sums in which order is the same for both sides and else of no matter. An item
 * of the sum is two words of each lane, of one tap; words behind the last are zeros.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/linear/conv_tail.h"

/* What the block makes: channels of y from `first` on, `channels` of them, of channels of x from
 * `from` on. */
typedef struct g_share {
    int32_t from, first, channels;
} g_share;

K_FN g_share g_share_of(const mp_group_conv_args *a) {
    const int32_t side = (int32_t)blockIdx.x % (a->groups * a->parts);
    const int32_t group = side / a->parts, part = side - group * a->parts;
    const int32_t left = a->group - part * a->part;
    g_share s;
    s.from = group * a->width;
    s.first = group * a->group + part * a->part;
    s.channels = left < a->part ? left : a->part;
    return s;
}

/* Where a pixel of y is, and what its first tap reads. */
typedef struct g_pixel {
    int32_t is, image, top, left;
} g_pixel;

K_FN g_pixel g_find(const mp_group_conv_args *a, int32_t pixel) {
    const int32_t is = pixel < a->pixels, at = is ? pixel : 0;
    const int32_t line = (int32_t)k_divide((uint32_t)at, a->by_out_w);
    g_pixel p;
    p.is = is;
    p.image = (int32_t)k_divide((uint32_t)line, a->by_out_h);
    p.top = (line - p.image * a->out_h) * a->stride_h - a->pad_h;
    p.left = (at - line * a->out_w) * a->stride_w - a->pad_w;
    return p;
}

#if K_WARP_MATRIX

enum { WARP = 32, WARPS = K_GROUP_LANES / WARP, TILES = K_WIDE / 8, AHEAD = 6 };

/* Taps down and across, elements from the first tap's pixel on, words that there are: 1 or 2. */
typedef struct K_ALIGN(16) g_item {
    int32_t down, across, at, words;
} g_item;

typedef struct K_ALIGN(8) g_two {
    uint32_t at[2];
} g_two;

#define g_mma K_JOIN(k_mma_, K_T0)

/* Words as they are multiplied. */
K_FN uint32_t g_word(uint32_t raw) {
    return K_WORD == 1 ? k_near_tf32(k_float_of_bits(raw)) : raw;
}

/* ---- once a block ---- */

K_FN void g_make_items(const mp_group_conv_args *a, g_item *items) {
    const int32_t each = a->width / 4 / K_WORD; /* words of a lane */
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < a->items; i += K_GROUP_LANES) {
        const int32_t tap = (int32_t)k_divide((uint32_t)i, a->by_steps);
        const int32_t row = (int32_t)k_divide((uint32_t)tap, a->by_kernel_w);
        const int32_t step = i - tap * a->steps;
        g_item item;
        item.down = row * a->dilation_h;
        item.across = (tap - row * a->kernel_w) * a->dilation_w;
        item.at = (item.down * a->in_w + item.across) * a->in_channels + step * 2 * K_WORD;
        item.words = each - 2 * step < 2 ? 1 : 2;
        items[i] = item;
    }
}

/* Word `q` of the weights: of lane q / 2 of 32, of a tile, of an item. */
K_FN uint32_t g_weight(const mp_group_conv_args *a, const g_share *s, int32_t q) {
    const int32_t tiles = s->channels / 8, lane = q / 2 % WARP, rest = q / (2 * WARP);
    const int32_t item = rest / tiles, tile = rest - item * tiles, g = lane / 4;
    const int32_t tap = (int32_t)k_divide((uint32_t)item, a->by_steps);
    const int32_t word = (item - tap * a->steps) * 2 + q % 2, each = a->width / 4 / K_WORD;
    const int32_t channel = s->first + g / 2 * (s->channels / 4) + 2 * tile + g % 2;
    const int is = word < each;
    const T *w = (const T *)a->w + ((int64_t)channel * a->kernel_h * a->kernel_w + tap) * a->width +
                 lane % 4 * (a->width / 4) + (is ? word : 0) * K_WORD;
    return is ? *(const uint32_t *)w : 0;
}

K_FN void g_hold_weights(const mp_group_conv_args *a, const g_share *s, uint32_t *to) {
    enum { SOME = 8 }; /* loads of a lane on their way */
    const int32_t count = a->items * (s->channels / 8) * 2 * WARP;
    K_ONE_COPY
    for (int32_t first = (int32_t)threadIdx.x; first < count; first += SOME * K_GROUP_LANES) {
        uint32_t raw[SOME];
        K_UNROLL
        for (int32_t k = 0; k < SOME; k++) {
            const int32_t q = first + k * K_GROUP_LANES;
            raw[k] = g_weight(a, s, q < count ? q : first);
        }
        K_UNROLL
        for (int32_t k = 0; k < SOME; k++) {
            const int32_t q = first + k * K_GROUP_LANES;
            if (q < count) {
                to[q] = K_WORD == 1 ? k_tf32(k_float_of_bits(raw[k])) : raw[k];
            }
        }
    }
}

/* ---- a tile ---- */

enum { SUMS = TILES * 4, WORDS = SUMS / 2 / K_WORD /* of a row */ };

typedef struct g_sums {
    float of[SUMS];
} g_sums;

/* Which one is of row `r` of the lane's two, of channel `c` of its quarter. */
#define G_SUM(r, c) ((c) / 2 * 4 + 2 * (r) + (c) % 2)

K_FN void g_begin(const mp_group_conv_args *a, const g_share *s, g_sums *sums) {
    const T *bias = (const T *)a->bias + s->first + (int32_t)threadIdx.x % 4 * (s->channels / 4);
    K_UNROLL
    for (int32_t j = 0; j < TILES; j++) {
        K_UNROLL
        for (int32_t e = 0; e < 2; e++) {
            const float b =
                a->bias != 0 && j * 8 < s->channels ? (float)T_load(bias[2 * j + e]) : 0.0F;
            sums->of[4 * j + e] = sums->of[4 * j + 2 + e] = b;
        }
    }
}

/* Both words of a lane of one row of an item; zeros beyond the image. */
K_FN void g_read(const mp_group_conv_args *a, const g_pixel *p, const T *from, const g_item *item,
                 uint32_t *first, uint32_t *second) {
    const int is = p->is & ((uint32_t)(p->top + item->down) < (uint32_t)a->in_h) &
                   ((uint32_t)(p->left + item->across) < (uint32_t)a->in_w);
    const uint32_t *at = (const uint32_t *)(from + (is ? item->at : 0));
    *first = is ? at[0] : 0;
    *second = is & (item->words > 1) ? at[1] : 0;
}

K_FN void g_add(const mp_group_conv_args *a, const g_share *s, const g_item *items,
                const g_two *weights, int32_t pixel, g_sums *sums) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, tiles = s->channels / 8;
    const g_pixel upper = g_find(a, pixel), lower = g_find(a, pixel + 8);
    const int32_t channel = s->from + lane % 4 * (a->width / 4);
    const T *x = (const T *)a->x;
    const T *high = x, *low = x; /* of the first tap, which may lie beyond the image */
    if (upper.is) {
        high += upper.image * a->x_image + (upper.top * a->in_w + upper.left) * a->in_channels +
                channel;
    }
    if (lower.is) {
        low += lower.image * a->x_image + (lower.top * a->in_w + lower.left) * a->in_channels +
               channel;
    }
    K_ONE_COPY
    for (int32_t begin = 0; begin < a->items; begin += AHEAD) {
        uint32_t words[AHEAD][4];
        K_UNROLL
        for (int32_t k = 0; k < AHEAD; k++) {
            const g_item item = items[begin + k < a->items ? begin + k : begin];
            g_read(a, &upper, high, &item, &words[k][0], &words[k][2]);
            g_read(a, &lower, low, &item, &words[k][1], &words[k][3]);
        }
        K_UNROLL
        for (int32_t k = 0; k < AHEAD; k++) {
            uint32_t some[4];
            K_UNROLL
            for (int32_t i = 0; i < 4; i++) {
                some[i] = g_word(words[k][i]);
            }
            if (begin + k < a->items) {
                const g_two *of = weights + (begin + k) * tiles * WARP + lane;
                K_UNROLL
                for (int32_t j = 0; j < TILES; j++) {
                    if (j < tiles) {
                        const g_two two = of[j * WARP];
                        g_mma(sums->of + 4 * j, some, two.at);
                    }
                }
            }
        }
    }
}

/* Elements of the lane's quarter of a pixel, from the beginning of y on. */
K_FN int64_t g_place(const mp_group_conv_args *a, const g_share *s, int32_t pixel) {
    return (int64_t)pixel * a->out_channels + s->first +
           (int32_t)threadIdx.x % 4 * (s->channels / 4);
}

/* Of both rows of the lane, whose first is of pixel `pixel`; all is asked for before it is used. */
K_FN void g_add_residual(const mp_group_conv_args *a, const g_share *s, int32_t pixel,
                         g_sums *sums) {
    uint32_t raw[2 * WORDS];
    K_UNROLL
    for (int32_t k = 0; k < 2 * WORDS; k++) {
        const int32_t row = pixel + k / WORDS * 8;
        const uint32_t *from =
            (const uint32_t *)((const T *)a->residual + g_place(a, s, row)) + k % WORDS;
        raw[k] = row < a->pixels && k % WORDS * K_WORD < s->channels / 4 ? *from : 0;
    }
    K_UNROLL
    for (int32_t k = 0; k < 2 * WORDS; k++) {
        float values[K_WORD];
        T_unpack(raw[k], values);
        K_UNROLL
        for (int32_t e = 0; e < K_WORD; e++) {
            sums->of[G_SUM(k / WORDS, k % WORDS * K_WORD + e)] += values[e];
        }
    }
}

K_FN void g_store(const mp_group_conv_args *a, const g_share *s, int32_t pixel,
                  const g_sums *sums) {
    K_UNROLL
    for (int32_t k = 0; k < 2 * WORDS; k++) {
        const int32_t row = pixel + k / WORDS * 8;
        float values[K_WORD];
        K_UNROLL
        for (int32_t e = 0; e < K_WORD; e++) {
            values[e] = sums->of[G_SUM(k / WORDS, k % WORDS * K_WORD + e)];
        }
        if (row < a->pixels && k % WORDS * K_WORD < s->channels / 4) {
            ((uint32_t *)((T *)a->y + g_place(a, s, row)))[k % WORDS] = T_repack(values);
        }
    }
}

K_BLOCK_KERNEL_LATE_OF(K_GROUP_LANES, 4, mp_group_conv_args, args) {
    K_SHARED(uint32_t, shared);
    g_item *items = (g_item *)shared;
    uint32_t *weights = shared + args.items * K_GROUP_ITEM;
    const g_share share = g_share_of(&args);
    const int32_t sides = args.groups * args.parts, lane = (int32_t)threadIdx.x % WARP;
    g_make_items(&args, items);
    if (!args.constant) {
        k_wait();
    }
    g_hold_weights(&args, &share, weights);
    k_wait();
    __syncthreads();
    for (int32_t tile = (int32_t)blockIdx.x / sides * WARPS + (int32_t)threadIdx.x / WARP;
         tile < args.count; tile += (int32_t)gridDim.x / sides * WARPS) {
        const int32_t pixel = tile * K_GROUP_PIXELS + lane / 4;
        g_sums sums;
        g_begin(&args, &share, &sums);
        __syncwarp(); /* lanes that had nothing to store are with the others again */
        g_add(&args, &share, items, (const g_two *)weights, pixel, &sums);
        if (args.residual != 0) {
            g_add_residual(&args, &share, pixel, &sums);
        }
        c_activate_turning(args.activation, args.alpha, args.beta, sums.of, SUMS);
        g_store(&args, &share, pixel, &sums);
    }
}

#else

K_FN TC g_sum(const mp_group_conv_args *a, const g_pixel *p, int32_t from, int32_t channel) {
    const T *image = (const T *)a->x + p->image * a->x_image + from;
    const T *w = (const T *)a->w + (int64_t)channel * a->kernel_h * a->kernel_w * a->width;
    TC sum = 0;
    for (int32_t tap = 0; tap < a->kernel_h * a->kernel_w; tap++) {
        const int32_t row = (int32_t)k_divide((uint32_t)tap, a->by_kernel_w);
        const int32_t y = p->top + row * a->dilation_h;
        const int32_t x = p->left + (tap - row * a->kernel_w) * a->dilation_w;
        if ((uint32_t)y < (uint32_t)a->in_h && (uint32_t)x < (uint32_t)a->in_w) {
            const T *at = image + (y * a->in_w + x) * a->in_channels;
            for (int32_t c = 0; c < a->width; c++) {
                sum += T_load(at[c]) * T_load(w[tap * a->width + c]);
            }
        }
    }
    return sum;
}

K_BLOCK_KERNEL_LATE_OF(K_GROUP_LANES, 1, mp_group_conv_args, args) {
    const int32_t sides = args.groups * args.parts;
    const g_share share = g_share_of(&args);
    k_wait();
    for (int32_t tile = (int32_t)blockIdx.x / sides; tile < args.count;
         tile += (int32_t)gridDim.x / sides) {
        K_BLOCK_LOOP(k, K_GROUP_PIXELS * share.channels) {
            const int32_t pixel = tile * K_GROUP_PIXELS + (int32_t)k / share.channels;
            const int32_t channel = share.first + (int32_t)k % share.channels;
            const g_pixel p = g_find(&args, pixel);
            const int64_t at = (int64_t)pixel * args.out_channels + channel;
            if (p.is) {
                TC sum = g_sum(&args, &p, share.from, channel);
                sum += args.bias != 0 ? T_load(((const T *)args.bias)[channel]) : (TC)0;
                sum += args.residual != 0 ? T_load(((const T *)args.residual)[at]) : (TC)0;
                ((T *)args.y)[at] =
                    T_store(c_activate(args.activation, args.alpha, args.beta, sum));
            }
        }
    }
}

#endif
