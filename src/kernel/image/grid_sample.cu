/* grid_sample.cu - samples an image at points that a grid gives, from -1 to 1 over the image. One
 * lane an output. What lies outside of the image is moved into it as the padding says: positions
 * before interpolating, and each pixel that is looked at.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/image/sample_args.h"

#if U_DOUBLE
#define G_M(fn) fn
#else
#define G_M(fn) K_JOIN(fn, f)
#endif

/* Positions are computed in the grid's type of arithmetic, sums in the image's. */
typedef UC G;

K_FN G g_position(const mp_grid_sample_args *args, int32_t d, G at) {
    const G size = (G)args->in[d];
    return args->align_corners ? (at + (G)1) / (G)2 * (size - (G)1)
                               : ((at + (G)1) * size - (G)1) / (G)2;
}

/* Where the image ends, as positions. */
K_FN G g_low(const mp_grid_sample_args *args) {
    return args->align_corners ? (G)0 : (G)-0.5;
}

K_FN G g_high(const mp_grid_sample_args *args, int32_t d) {
    return (G)args->in[d] - (args->align_corners ? (G)1 : (G)0.5);
}

/* The whole number that a position is; one far outside for what no image has, NaN too. */
K_FN int64_t g_whole(G at) {
    return at > (G)-1e9 && at < (G)1e9 ? (int64_t)at : -((int64_t)1 << 31);
}

K_FN G g_reflect(G at, G low, G high) {
    const G range = high - low;
    const int below = at < low;
    if (!below && !(at > high)) {
        return at;
    }
    const G distance = below ? low - at : at - high;
    const G turns = G_M(floor)(distance / range);
    const G rest = distance - turns * range;
    const int same = turns - (G)2 * G_M(floor)(turns / (G)2) == (G)0;
    return same == below ? low + rest : high - rest;
}

/* A position outside of the image, in any dimension, is moved inside in all. Cubic sampling leaves
 * positions where they are: its pixels alone are moved. */
K_FN void g_settle(const mp_grid_sample_args *args, G at[K_SAMPLE_DIMS]) {
    int outside = 0;
    for (int32_t d = K_SAMPLE_DIMS - args->dims; d < K_SAMPLE_DIMS; d++) {
        outside |= at[d] < g_low(args) || at[d] > g_high(args, d);
    }
    for (int32_t d = K_SAMPLE_DIMS - args->dims; outside && d < K_SAMPLE_DIMS; d++) {
        const G last = (G)(args->in[d] - 1);
        if (args->padding == K_SAMPLE_BORDER) {
            at[d] = at[d] < (G)0 ? (G)0 : at[d] > last ? last : at[d];
        } else if (args->padding == K_SAMPLE_REFLECTION) {
            at[d] = g_reflect(at[d], g_low(args), g_high(args, d));
        }
    }
}

/* The index that a pixel's number means in dimension `d`; -1 where it is a zero. */
K_FN int64_t g_index(const mp_grid_sample_args *args, int32_t d, int64_t number) {
    const int64_t last = args->in[d] - 1;
    if (number >= 0 && number <= last) {
        return number;
    }
    if (args->padding == K_SAMPLE_ZEROS) {
        return -1;
    }
    if (args->padding == K_SAMPLE_REFLECTION) {
        number = g_whole(g_reflect((G)number, g_low(args), g_high(args, d)));
    }
    return number < 0 ? 0 : number > last ? last : number;
}

K_FN TC g_pixel(const mp_grid_sample_args *args, const T *x, int64_t a, int64_t b, int64_t c) {
    const int64_t i = args->dims == 3 ? g_index(args, 0, a) : 0;
    const int64_t j = g_index(args, 1, b);
    const int64_t k = g_index(args, 2, c);
    if (i < 0 || j < 0 || k < 0) {
        return (TC)0;
    }
    return T_load(x[((i * args->in[1] + j) * args->in[2] + k) * args->point_stride]);
}

K_FN TC g_linear(const mp_grid_sample_args *args, const T *x, const G at[K_SAMPLE_DIMS]) {
    int64_t from[K_SAMPLE_DIMS];
    TC weight[K_SAMPLE_DIMS][2];
    TC sum = (TC)0;
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        const G floor_of = G_M(floor)(at[d]);
        from[d] = g_whole(floor_of);
        weight[d][1] = (TC)(at[d] - floor_of);
        weight[d][0] = (TC)((G)1 - (at[d] - floor_of));
    }
    for (int32_t corner = args->dims == 3 ? 0 : 4; corner < 8; corner++) {
        const int32_t a = args->dims == 3 ? corner >> 2 : 0;
        const int32_t b = corner >> 1 & 1;
        const int32_t c = corner & 1;
        const TC share = args->dims == 3 ? weight[0][a] : (TC)1;
        sum += share * weight[1][b] * weight[2][c] *
               g_pixel(args, x, from[0] + a, from[1] + b, from[2] + c);
    }
    return sum;
}

K_FN TC g_nearest(const mp_grid_sample_args *args, const T *x, const G at[K_SAMPLE_DIMS]) {
    int64_t number[K_SAMPLE_DIMS];
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        number[d] = g_whole(at[d]);
    }
    return g_pixel(args, x, number[0], number[1], number[2]);
}

/* Weights of the four pixels around a position, `rest` behind the second. */
K_FN void g_cubic_weights(TC rest, TC weight[4]) {
    const TC sharp = (TC)-0.75;
    const TC far_before = rest + (TC)1;
    const TC after = (TC)1 - rest;
    const TC far_after = (TC)2 - rest;
    weight[0] = ((sharp * far_before - (TC)5 * sharp) * far_before + (TC)8 * sharp) * far_before -
                (TC)4 * sharp;
    weight[1] = ((sharp + (TC)2) * rest - (sharp + (TC)3)) * rest * rest + (TC)1;
    weight[2] = ((sharp + (TC)2) * after - (sharp + (TC)3)) * after * after + (TC)1;
    weight[3] = ((sharp * far_after - (TC)5 * sharp) * far_after + (TC)8 * sharp) * far_after -
                (TC)4 * sharp;
}

K_FN TC g_cubic(const mp_grid_sample_args *args, const T *x, const G at[K_SAMPLE_DIMS]) {
    const G row = G_M(floor)(at[1]);
    const G column = G_M(floor)(at[2]);
    TC down[4];
    TC across[4];
    TC sum = (TC)0;
    g_cubic_weights((TC)(at[1] - row), down);
    g_cubic_weights((TC)(at[2] - column), across);
    for (int32_t i = 0; i < 4; i++) {
        TC line = (TC)0;
        for (int32_t j = 0; j < 4; j++) {
            line += across[j] * g_pixel(args, x, 0, g_whole(row) + i - 1, g_whole(column) + j - 1);
        }
        sum += down[i] * line;
    }
    return sum;
}

K_FN TC g_sample(const mp_grid_sample_args *args, const T *x, const U *grid) {
    G at[K_SAMPLE_DIMS];
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        at[d] = (G)0;
    }
    for (int32_t d = K_SAMPLE_DIMS - args->dims; d < K_SAMPLE_DIMS; d++) {
        at[d] = g_position(args, d, U_load(grid[K_SAMPLE_DIMS - 1 - d]));
        at[d] = args->mode == K_SAMPLE_NEAREST ? G_M(rint)(at[d]) : at[d];
    }
    if (args->mode != K_SAMPLE_CUBIC) {
        g_settle(args, at);
    }
    return args->mode == K_SAMPLE_LINEAR    ? g_linear(args, x, at)
           : args->mode == K_SAMPLE_NEAREST ? g_nearest(args, x, at)
                                            : g_cubic(args, x, at);
}

K_KERNEL(mp_grid_sample_args, args) {
    const T *x = (const T *)args.x;
    const U *grid = (const U *)args.grid;
    T *out = (T *)args.out;
    const int64_t plane = args.channels_last ? args.channels : args.points;
    K_GRID_LOOP(i, args.count) {
        const int64_t outer = i / plane;
        const int64_t inner = i - outer * plane;
        const int64_t rows = args.channels_last ? args.points : args.channels;
        const int64_t batch = outer / rows;
        const int64_t row = outer - batch * rows;
        const int64_t channel = args.channels_last ? inner : row;
        const int64_t point = args.channels_last ? row : inner;
        out[i] =
            T_store(g_sample(&args, x + batch * args.batch_stride + channel * args.channel_stride,
                             grid + (batch * args.points + point) * args.dims));
    }
}
