/* roi_align.cu - each bin of a region: the mean of samples between pixels, or the largest of their
 * four shares, as ONNX's reference has it, not of the samples. Where samples are does not depend on
 * the channel: a lane finds that once for several channels, which it takes one after the other, so
 * that what its neighbours read is of one channel, too, and in a cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/image/roi.h"

enum {
    PLANES = K_ROI_PLANES,
    POINTS = 4, /* samples of a bin whose places are kept, at most */
};

/* The four pixels around a point and their weights; none beyond the edge by more than a pixel. */
typedef struct corners {
    int64_t at[4];
    TC weight[4];
} corners;

K_FN int clamp_pixel(TC *position, int64_t size, int64_t *low) {
    if (!(*position >= (TC)-1 && *position <= (TC)size)) { /* NaN is outside, too */
        return 0;
    }
    if (*position <= 0) {
        *position = 0;
    }
    *low = (int64_t)*position;
    if (*low >= size - 1) {
        *low = size - 1;
        *position = (TC)*low;
    }
    return 1;
}

K_FN int find_corners(TC y, TC x, int64_t height, int64_t width, corners *c) {
    int64_t top = 0, left = 0;
    if (!clamp_pixel(&y, height, &top) || !clamp_pixel(&x, width, &left)) {
        return 0;
    }
    const int64_t down = top < height - 1 ? width : 0;
    const int64_t right = left < width - 1 ? 1 : 0;
    const TC dy = y - (TC)top, dx = x - (TC)left;
    c->at[0] = top * width + left;
    c->at[1] = c->at[0] + right;
    c->at[2] = c->at[0] + down;
    c->at[3] = c->at[2] + right;
    c->weight[0] = (1 - dy) * (1 - dx);
    c->weight[1] = (1 - dy) * dx;
    c->weight[2] = dy * (1 - dx);
    c->weight[3] = dy * dx;
    return 1;
}

/* Samples along a side of a bin; none of a region that ends before it begins, or nowhere. */
K_FN int64_t samples_of(const mp_roi_align_args *args, TC side) {
    if (args->samples > 0) {
        return args->samples;
    }
    const TC wanted = K_M(ceil)(side);
    if (!(wanted > 0)) {
        return 0;
    }
    return wanted < (TC)K_ROI_SAMPLES_MAX ? (int64_t)wanted : K_ROI_SAMPLES_MAX;
}

typedef struct side {
    TC start, bin;
} side;

K_FN side side_of(const mp_roi_align_args *args, T low, T high, int64_t bins) {
    const TC half = args->half_pixel ? (TC)0.5 : (TC)0;
    const TC start = T_load(low) * (TC)args->scale - half;
    TC length = T_load(high) * (TC)args->scale - half - start;
    if (!args->half_pixel && length < 1) {
        length = 1;
    }
    const side out = {start, length / (TC)bins};
    return out;
}

/* What a lane has: a bin of a region, in some channels. */
typedef struct item {
    int64_t x, y, region;
    int64_t channel; /* the first one */
    int32_t planes;
} item;

K_FN item item_of(const mp_roi_align_args *args, int64_t i) {
    const mp_roi_space *space = &args->space;
    const k_quotient column = k_quotient_of(i, space->out_w, args->by_out_w, args->wide);
    const k_quotient row = k_quotient_of(column.whole, space->out_h, args->by_out_h, args->wide);
    const k_quotient piece = k_quotient_of(row.whole, args->pieces, args->by_pieces, args->wide);
    item it;
    it.x = column.rest;
    it.y = row.rest;
    it.region = piece.whole;
    it.channel = piece.rest * PLANES;
    const int64_t left = space->channels - it.channel;
    it.planes = left < PLANES ? (int32_t)left : PLANES;
    return it;
}

/* What a channel gives; `most` is what the largest share is, if that is asked for. */
typedef struct pooled {
    TC sum, most;
} pooled;

K_FN pooled nothing_pooled(void) {
    const pooled none = {0, -(TC)K_INF};
    return none;
}

/* Adds a sample; one beyond the edge is 0. */
K_FN void add_sample(const TC *pixel, const TC *weight, int inside, int largest, pooled *out) {
    K_UNROLL
    for (int j = 0; j < 4; j++) {
        const TC share = inside ? weight[j] * pixel[j] : 0;
        if (largest) {
            out->most = share > out->most ? share : out->most;
        } else {
            out->sum += share;
        }
    }
}

K_FN T pooled_value(const pooled *all, int64_t points, int largest) {
    const TC mean = all->sum / (TC)(points > 1 ? points : 1);
    return T_store(!largest ? mean : points > 0 ? all->most : 0);
}

/* Samples of a bin, row by row. */
typedef struct grid_of {
    side y, x;
    int64_t rows, columns;
} grid_of;

K_FN int find_sample(const mp_roi_align_args *args, const grid_of *grid, int64_t i, int64_t j,
                     corners *c) {
    const TC y = grid->y.start + ((TC)i + (TC)0.5) * grid->y.bin / (TC)grid->rows;
    const TC x = grid->x.start + ((TC)j + (TC)0.5) * grid->x.bin / (TC)grid->columns;
    return find_corners(y, x, args->space.in_h, args->space.in_w, c);
}

/* A bin of few samples, in all of the lane's channels. */
K_FN void pool_few(const mp_roi_align_args *args, const T *image, const grid_of *grid,
                   int32_t planes, int largest, T *to) {
    const mp_roi_space *space = &args->space;
    const int64_t plane = space->in_h * space->in_w, bins = space->out_h * space->out_w;
    const int32_t columns = (int32_t)grid->columns, points = (int32_t)grid->rows * columns;
    corners c[POINTS] = {{{0}, {0}}};
    int inside[POINTS];
    K_UNROLL
    for (int32_t p = 0; p < POINTS; p++) {
        const int32_t i = p < points ? p / columns : 0;
        inside[p] = p < points && find_sample(args, grid, i, p - i * columns, &c[p]);
    }
    K_ONE_COPY
    for (int32_t k = 0; k < planes; k++) {
        TC pixel[POINTS][4];
        pooled all = nothing_pooled();
        K_UNROLL
        for (int32_t p = 0; p < POINTS; p++) {
            K_UNROLL
            for (int j = 0; j < 4; j++) {
                pixel[p][j] = T_load(image[c[p].at[j]]);
            }
        }
        K_UNROLL
        for (int32_t p = 0; p < POINTS; p++) {
            if (p < points) {
                add_sample(pixel[p], c[p].weight, inside[p], largest, &all);
            }
        }
        *to = pooled_value(&all, points, largest);
        image += plane;
        to += bins;
    }
}

/* One of many, whose places are found again for each channel. */
K_FN void pool_many(const mp_roi_align_args *args, const T *image, const grid_of *grid,
                    int32_t planes, int largest, T *to) {
    const mp_roi_space *space = &args->space;
    const int64_t plane = space->in_h * space->in_w, bins = space->out_h * space->out_w;
    K_ONE_COPY
    for (int32_t k = 0; k < planes; k++) {
        pooled all = nothing_pooled();
        for (int64_t i = 0; i < grid->rows; i++) {
            for (int64_t j = 0; j < grid->columns; j++) {
                corners c = {{0}, {0}};
                TC pixel[4];
                const int inside = find_sample(args, grid, i, j, &c);
                K_UNROLL
                for (int e = 0; e < 4; e++) {
                    pixel[e] = T_load(image[c.at[e]]);
                }
                add_sample(pixel, c.weight, inside, largest, &all);
            }
        }
        *to = pooled_value(&all, grid->rows * grid->columns, largest);
        image += plane;
        to += bins;
    }
}

K_FN void pool(const mp_roi_align_args *args, const T *image, int32_t planes, side y, side x,
               int largest, T *to) {
    const grid_of grid = {y, x, samples_of(args, y.bin), samples_of(args, x.bin)};
    if (grid.rows * grid.columns <= POINTS) {
        pool_few(args, image, &grid, planes, largest, to);
    } else {
        pool_many(args, image, &grid, planes, largest, to);
    }
}

K_FN void pool_bin(const mp_roi_align_args *args, const item *it, int largest) {
    const mp_roi_space *space = &args->space;
    const int64_t plane = it->region * space->channels + it->channel;
    const int64_t batch = args->batch[it->region];
    T *to = (T *)args->out + (plane * space->out_h + it->y) * space->out_w + it->x;
    if (batch < 0 || batch >= space->batches || space->in_h * space->in_w == 0) {
        for (int32_t k = 0; k < it->planes; k++) {
            to[k * space->out_h * space->out_w] = T_store(0);
        }
        return;
    }
    const T *roi = (const T *)args->rois + it->region * 4;
    side x = side_of(args, roi[0], roi[2], space->out_w);
    side y = side_of(args, roi[1], roi[3], space->out_h);
    x.start += (TC)it->x * x.bin;
    y.start += (TC)it->y * y.bin;
    pool(args, k_image_of(space, args->x, batch, it->channel), it->planes, y, x, largest, to);
}

K_KERNEL(mp_roi_align_args, args) {
    K_GRID_LOOP(i, args.count) {
        const item it = item_of(&args, i);
        if (args.largest) {
            pool_bin(&args, &it, 1);
        } else {
            pool_bin(&args, &it, 0);
        }
    }
}
