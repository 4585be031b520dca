/* conv_stem.cu - a convolution of images with few channels, as networks begin with, with what
 * follows it: K_WIDE channels at a time, by tensor cores. x, w and y may have their channels first
 * or last, each by itself.
 *
 * A block holds the weights, and makes one tile of outputs after the other from what
 * these see of the image (stem_tile.h). What is multiplied is read from there where it lies, so
 * that no matrix of columns is made. Rows of the products are channels and columns are pixels, each
 * dealt so that a lane ends with EACH neighbouring channels of K_STEM_RUN neighbouring pixels: it
 * has 16 bytes to store at once in either order. Without tensor cores each output is summed by
 * itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/stem_tile.h"

K_FN int64_t s_place_out(const mp_stem_args *a, const s_tile *t, int32_t row, int32_t column,
                         int32_t channel) {
    const int64_t image = t->image * a->y_image;
    return image + (a->y_last ? ((int64_t)row * a->out_w + column) * a->channels + channel
                              : ((int64_t)channel * a->out_h + row) * a->out_w + column);
}

#if K_WARP_MATRIX

enum { RUNS = K_STEM_RUN / 2, SUMS = HIGH * RUNS * 4 };

/* Of a lane: four of each product, those of a pair of channels and a pair of pixels. */
typedef struct s_sums {
    float of[SUMS];
} s_sums;

/* Which one is of channel `c` and pixel `p` of the lane's. */
#define S_SUM(c, p) ((((c) / 2 * RUNS + (p) / 2) * 2 + (c) % 2) * 2 + (p) % 2)

#define s_mma K_JOIN(k_mma_, K_T0)

/* ---- sums ---- */

K_FN void s_begin(const s_held *held, int32_t group, s_sums *sums) {
    const float *bias = held->bias + group * K_WIDE + (int32_t)threadIdx.x % WARP / 4 * EACH;
    K_UNROLL
    for (int32_t c = 0; c < EACH; c++) {
        K_UNROLL
        for (int32_t p = 0; p < K_STEM_RUN; p++) {
            sums->of[S_SUM(c, p)] = bias[c];
        }
    }
}

/* Run `run` of the warp begins there in the tile. */
typedef struct s_spot {
    int32_t row, column;
} s_spot;

K_FN s_spot s_spot_of(const mp_stem_args *a, int32_t run) {
    const int32_t pixel = (int32_t)threadIdx.x / WARP * WARP + run * K_STEM_RUN;
    s_spot spot;
    spot.row = pixel >> a->columns_log;
    spot.column = pixel & ((1 << a->columns_log) - 1);
    return spot;
}

/* Column g of product j is pixel 2 j + g % 2 of run g / 2, so that columns 2 t and 2 t + 1 of all
 * are run t. */
K_FN void s_add(const mp_stem_args *a, const s_held *held, int32_t group, s_sums *sums) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, g = lane / 4;
    const s_spot spot = s_spot_of(a, g / 2);
    __syncwarp(); /* lanes that had nothing to store are with the others again */
    const uint32_t *image = held->image + spot.row * a->stride_h * a->pitch + spot.column + g % 2;
    const s_four *table = (const s_four *)held->table + lane % 4;
    const s_four *weights = (const s_four *)held->weights + group * a->steps * HIGH * WARP + lane;
    for (int32_t step = 0; step < a->steps; step++) {
        const s_four where = table[step * 4];
        const uint32_t *low = image + where.at[0], *high = image + where.at[1];
        uint32_t pixels[RUNS][2];
        K_UNROLL
        for (int32_t j = 0; j < RUNS; j++) {
            pixels[j][0] = low[2 * j] & where.at[2];
            pixels[j][1] = high[2 * j] & where.at[3];
        }
        K_UNROLL
        for (int32_t i = 0; i < HIGH; i++) {
            const s_four some = weights[(step * HIGH + i) * WARP];
            K_UNROLL
            for (int32_t j = 0; j < RUNS; j++) {
                s_mma(sums->of + (i * RUNS + j) * 4, some.at, pixels[j]);
            }
        }
    }
}

/* ---- what becomes of them ---- */

/* 16 aligned bytes at once: left to itself the compiler stores some by words. */
K_FN void s_put_four(void *to, const uint32_t *word) {
#if K_PTX
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
#else
    __builtin_memcpy(to, word, 16);
#endif
}

/* Neighbours, `count` of them, of which `left` are of the tensor: all where they are packed. */
K_FN void s_put(T *to, const float *values, int32_t count, int32_t left, int packed) {
    if (!packed) {
        K_UNROLL
        for (int32_t k = 0; k < count; k++) {
            if (k < left) {
                to[k] = T_store(values[k]);
            }
        }
        return;
    }
    uint32_t word[K_STEM_RUN];
    K_UNROLL
    for (int32_t k = 0; k < count / K_WORD; k++) {
        word[k] = T_repack(values + k * K_WORD);
    }
    if (count / K_WORD == 2) {
        *(uint64_t *)to = word[0] | (uint64_t)word[1] << 32;
        return;
    }
    K_UNROLL
    for (int32_t k = 0; k < count / K_WORD; k += 4) {
        s_put_four((uint32_t *)to + k, word + k);
    }
}

/* The lane's channels from `first` on, `channels` of them, of run t, `pixels` of which there are.
 */
typedef struct s_share {
    int32_t first, channels, row, column, pixels;
} s_share;

K_FN void s_put_first(const mp_stem_args *a, const s_tile *t, const s_share *share,
                      const s_sums *sums, int packed) {
    T *to = (T *)a->y + s_place_out(a, t, share->row, share->column, share->first);
    const int64_t plane = (int64_t)a->out_h * a->out_w;
    K_UNROLL
    for (int32_t c = 0; c < EACH; c++) {
        float made[K_STEM_RUN];
        K_UNROLL
        for (int32_t p = 0; p < K_STEM_RUN; p++) {
            made[p] = sums->of[S_SUM(c, p)];
        }
        if (c < share->channels) {
            s_put(to + c * plane, made, K_STEM_RUN, share->pixels, packed);
        }
    }
}

K_FN void s_put_last(const mp_stem_args *a, const s_tile *t, const s_share *share,
                     const s_sums *sums, int packed) {
    T *to = (T *)a->y + s_place_out(a, t, share->row, share->column, share->first);
    K_UNROLL
    for (int32_t p = 0; p < K_STEM_RUN; p++) {
        float made[EACH];
        K_UNROLL
        for (int32_t c = 0; c < EACH; c++) {
            made[c] = sums->of[S_SUM(c, p)];
        }
        if (p < share->pixels) {
            s_put(to + p * a->channels, made, EACH, share->channels, packed);
        }
    }
}

K_FN void s_store(const mp_stem_args *a, const s_tile *t, int32_t group, const s_sums *sums) {
    const int32_t lane = (int32_t)threadIdx.x % WARP;
    const s_spot spot = s_spot_of(a, lane % 4);
    s_share share;
    share.first = group * K_WIDE + lane / 4 * EACH;
    share.channels = a->channels - share.first;
    share.row = t->row + spot.row;
    share.column = t->column + spot.column;
    share.pixels = a->out_w - share.column;
    if (share.row >= a->out_h || share.pixels <= 0 || share.channels <= 0) {
        return;
    }
    if (a->y_last) {
        if (a->packed) {
            s_put_last(a, t, &share, sums, 1);
        } else {
            s_put_last(a, t, &share, sums, 0);
        }
    } else if (a->packed) {
        s_put_first(a, t, &share, sums, 1);
    } else {
        s_put_first(a, t, &share, sums, 0);
    }
}

/* ---- all ---- */

K_FN void s_make(const mp_stem_args *a, const s_held *held, int32_t i) {
    const s_tile t = s_find(a, i);
    if (K_WORD > 1 && a->loads_words) {
        s_fill_image(a, held, &t, K_WORD);
    } else {
        s_fill_image(a, held, &t, 1);
    }
    __syncthreads();
    K_ONE_COPY
    for (int32_t group = 0; group < a->groups; group++) {
        s_sums sums;
        s_begin(held, group, &sums);
        s_add(a, held, group, &sums);
        c_activate_turning(a->activation, a->alpha, a->beta, sums.of, SUMS);
        s_store(a, &t, group, &sums);
    }
    __syncthreads(); /* before the next tile is held */
}

K_BLOCK_KERNEL_LATE_OF(K_STEM_LANES, K_WIDE == 64 ? 2 : 3, mp_stem_args, args) {
    K_SHARED(uint32_t, shared);
    const s_held held = s_hold(&args, shared);
    s_make_table(&args, &held);
    s_make_places(&args, &held);
    s_clear_weights(&args, &held);
    if (!args.constant) {
        k_wait();
    }
    __syncthreads();
    s_fill_weights(&args, &held);
    k_wait();
    for (int32_t i = (int32_t)blockIdx.x; i < args.count; i += (int32_t)gridDim.x) {
        s_make(&args, &held, i); /* whose barrier is also behind the weights */
    }
}

#else

K_FN TC s_sum(const mp_stem_args *a, const s_tile *t, int32_t row, int32_t column,
              int32_t channel) {
    const T *image = (const T *)a->x + t->image * a->x_image;
    const T *w = (const T *)a->w + channel * a->taps;
    const int32_t tap = a->w_last ? a->in_channels : 1; /* from a tap to the next */
    const int32_t plane = a->w_last ? 1 : a->kernel_h * a->kernel_w;
    TC sum = 0;
    for (int32_t c = 0; c < a->in_channels; c++) {
        const T *from = image + (a->pixel > 1 ? c : c * a->x_plane);
        for (int32_t k = 0; k < a->kernel_h * a->kernel_w; k++) {
            const int32_t down = (int32_t)k_divide((uint32_t)k, a->by_kernel_w);
            const int32_t y = row * a->stride_h - a->pad_h + down * a->dilation_h;
            const int32_t x =
                column * a->stride_w - a->pad_w + (k - down * a->kernel_w) * a->dilation_w;
            if ((uint32_t)y < (uint32_t)a->in_h && (uint32_t)x < (uint32_t)a->in_w) {
                sum += T_load(from[y * a->x_row + x * a->pixel]) * T_load(w[c * plane + k * tap]);
            }
        }
    }
    return sum;
}

K_BLOCK_KERNEL_LATE_OF(K_STEM_LANES, 1, mp_stem_args, args) {
    k_wait();
    for (int32_t i = (int32_t)blockIdx.x; i < args.count; i += (int32_t)gridDim.x) {
        const s_tile t = s_find(&args, i);
        K_BLOCK_LOOP(k, args.channels * args.pixels) {
            const int32_t channel = (int32_t)k / args.pixels, pixel = (int32_t)k % args.pixels;
            const int32_t row = t.row + (pixel >> args.columns_log);
            const int32_t column = t.column + (pixel & ((1 << args.columns_log) - 1));
            if (row < args.out_h && column < args.out_w) {
                const TC bias = args.bias != 0 ? T_load(((const T *)args.bias)[channel]) : (TC)0;
                const TC sum = s_sum(&args, &t, row, column, channel) + bias;
                ((T *)args.y)[s_place_out(&args, &t, row, column, channel)] =
                    T_store(c_activate(args.activation, args.alpha, args.beta, sum));
            }
        }
    }
}

#endif
