/* grid_sample.cu - samples an image at points that a grid gives, from -1 to 1 over the image. A
 * lane finds the pixels of a point and weighs them for K_SAMPLE_EACH channels. What lies outside of
 * the image is moved into it as the padding says: positions before interpolating, and each pixel
 * that is looked at. K_PIXELS: 1 the nearest, 4 linear, 8 the same of three dimensions, 16 cubic.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/image/sample_args.h"

#if U_DOUBLE
#define G_M(fn) fn
#else
#define G_M(fn) K_JOIN(fn, f)
#endif

/* What is seldom needed, and would be repeated for each pixel. */
#if K_HOST
#define G_CALLED static
#else
#define G_CALLED static __device__ __noinline__
#endif

#if K_PIXELS == 1
#define G_DIMS(args) ((args)->dims)
#else
#define G_DIMS(args) (K_PIXELS == 8 ? 3 : 2)
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

G_CALLED G g_reflect(G at, G low, G high) {
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
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        outside |=
            d >= K_SAMPLE_DIMS - G_DIMS(args) && (at[d] < g_low(args) || at[d] > g_high(args, d));
    }
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        if (!outside || d < K_SAMPLE_DIMS - G_DIMS(args)) {
            continue;
        }
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

/* ---- the pixels of a point ---- */

enum { SPAN = K_PIXELS == 16 ? 4 : K_PIXELS == 1 ? 1 : 2 }; /* along a dimension */
enum { DEEP = K_PIXELS == 8 ? 2 : 1 };

/* Those along one dimension: where each lies in x, -1 for zero, and what it weighs. */
typedef struct g_axis {
    int64_t at[SPAN];
    TC weight[SPAN];
} g_axis;

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

/* Dimension `d`, whose pixels are `stride` apart. */
K_FN g_axis g_axis_of(const mp_grid_sample_args *args, int32_t d, G at, int64_t stride) {
    g_axis axis;
#if K_PIXELS == 1
    const int64_t first = g_whole(at);
    axis.weight[0] = (TC)1;
#else
    const G floor_of = G_M(floor)(at);
    const int64_t first = g_whole(floor_of) - (SPAN == 4 ? 1 : 0);
#if K_PIXELS == 16
    g_cubic_weights((TC)(at - floor_of), axis.weight);
#else
    axis.weight[1] = (TC)(at - floor_of);
    axis.weight[0] = (TC)((G)1 - (at - floor_of));
#endif
#endif
    for (int32_t k = 0; k < SPAN; k++) {
        const int64_t index = g_index(args, d, first + k);
        axis.at[k] = index < 0 ? -1 : index * stride;
    }
    return axis;
}

/* The same where x has one pixel there. */
K_FN g_axis g_axis_of_one(void) {
    g_axis axis;
    axis.at[0] = 0;
    axis.weight[0] = (TC)1;
    return axis;
}

typedef struct g_point {
    g_axis axis[K_SAMPLE_DIMS];
} g_point;

K_FN g_point g_point_of(const mp_grid_sample_args *args, const U *grid) {
    G at[K_SAMPLE_DIMS];
    for (int32_t d = 0; d < K_SAMPLE_DIMS; d++) {
        at[d] = (G)0;
        if (d >= K_SAMPLE_DIMS - G_DIMS(args)) {
            at[d] = g_position(args, d, U_load(grid[K_SAMPLE_DIMS - 1 - d]));
            at[d] = K_PIXELS == 1 ? G_M(rint)(at[d]) : at[d];
        }
    }
    if (K_PIXELS != 16) {
        g_settle(args, at);
    }
    const int64_t row = args->in[2] * args->point_stride;
    g_point point;
    point.axis[2] = g_axis_of(args, 2, at[2], args->point_stride);
    point.axis[1] = g_axis_of(args, 1, at[1], row);
    if (G_DIMS(args) == 3) {
        point.axis[0] = g_axis_of(args, 0, at[0], row * args->in[1]);
    } else {
        point.axis[0] = g_axis_of_one();
    }
    return point;
}

/* One pixel of a channel; one that is zero is read at the channel's first, so that no load waits
 * for a comparison. */
K_FN TC g_pixel(const T *x, const g_point *p, int32_t a, int32_t b, int32_t c) {
    const int64_t i = p->axis[0].at[a], j = p->axis[1].at[b], k = p->axis[2].at[c];
    const int zero = (i | j | k) < 0;
    const TC pixel = T_load(x[zero ? 0 : i + j + k]);
    return zero ? (TC)0 : pixel;
}

K_FN TC g_sample(const T *x, const g_point *p) {
#if K_PIXELS == 1
    return g_pixel(x, p, 0, 0, 0);
#else
    TC sum = (TC)0;
    for (int32_t a = 0; a < DEEP; a++) {
        for (int32_t b = 0; b < SPAN; b++) {
            TC line = (TC)0;
            for (int32_t c = 0; c < SPAN; c++) {
                const TC pixel = g_pixel(x, p, a, b, c);
                if (K_PIXELS == 16) {
                    line += p->axis[2].weight[c] * pixel;
                } else {
                    sum +=
                        p->axis[0].weight[a] * p->axis[1].weight[b] * p->axis[2].weight[c] * pixel;
                }
            }
            if (K_PIXELS == 16) {
                sum += p->axis[1].weight[b] * line;
            }
        }
    }
    return sum;
#endif
}

/* ---- who makes what ---- */

G_CALLED int64_t g_wide_quotient(int64_t n, int64_t dim) {
    return n / dim;
}

K_FN int64_t g_quotient(const mp_grid_sample_args *args, int64_t n, int64_t dim, k_divider by) {
    return args->wide ? g_wide_quotient(n, dim) : (int64_t)k_divide((uint32_t)n, by);
}

K_KERNEL(mp_grid_sample_args, args) {
    const U *__restrict__ grid = (const U *)args.grid;
    const int64_t points = args.points, channels = args.channels;
    const int64_t inner_count = args.channels_last ? args.groups : points;
    const int64_t outer_count = args.channels_last ? points : args.groups;
    K_ONE_COPY
    K_GRID_LOOP(n, args.count) {
        const int64_t rest = g_quotient(&args, n, inner_count, args.by_inner);
        const int64_t inner = n - rest * inner_count;
        const int64_t batch = g_quotient(&args, rest, outer_count, args.by_outer);
        const int64_t outer = rest - batch * outer_count;
        const int64_t first = (args.channels_last ? inner : outer) * K_SAMPLE_EACH;
        const int64_t place = args.channels_last ? outer : inner;
        const g_point point = g_point_of(&args, grid + (batch * points + place) * G_DIMS(&args));
        const T *__restrict__ x = (const T *)args.x + batch * args.batch_stride;
        const int64_t step = args.channels_last ? 1 : points;
        T *out = (T *)args.out + batch * channels * points +
                 (args.channels_last ? place * channels : place);
        TC made[K_SAMPLE_EACH];
        for (int32_t k = 0; k < K_SAMPLE_EACH; k++) {
            const int64_t channel = first + k < channels ? first + k : first;
            made[k] = g_sample(x + channel * args.channel_stride, &point);
        }
        for (int32_t k = 0; k < K_SAMPLE_EACH; k++) {
            if (first + k < channels) {
                out[(first + k) * step] = T_store(made[k]);
            }
        }
    }
}
