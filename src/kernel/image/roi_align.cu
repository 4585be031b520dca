/* roi_align.cu - each bin of a region: the mean of samples between pixels, or the largest of their
 * four shares, as ONNX's reference has it, not of the samples.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/roi.h"

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

/* Samples along a side of a bin. */
K_FN int64_t samples_of(const mp_roi_align_args *args, TC side) {
    if (args->samples > 0) {
        return args->samples;
    }
    const TC wanted = K_M(ceil)(side);
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

K_FN TC pool(const mp_roi_align_args *args, const T *image, side y, side x) {
    const int64_t rows = samples_of(args, y.bin), columns = samples_of(args, x.bin);
    TC sum = 0, most = -(TC)K_INF;
    for (int64_t i = 0; i < rows; i++) {
        const TC at_y = y.start + ((TC)i + (TC)0.5) * y.bin / (TC)rows;
        for (int64_t j = 0; j < columns; j++) {
            const TC at_x = x.start + ((TC)j + (TC)0.5) * x.bin / (TC)columns;
            corners c;
            if (!find_corners(at_y, at_x, args->space.in_h, args->space.in_w, &c)) {
                most = most < 0 ? 0 : most;
                continue;
            }
            for (int k = 0; k < 4; k++) {
                const TC share = c.weight[k] * T_load(image[c.at[k]]);
                sum += share;
                most = share > most ? share : most;
            }
        }
    }
    const int64_t points = rows * columns;
    if (args->largest) {
        return points > 0 ? most : 0;
    }
    return sum / (TC)(points > 1 ? points : 1);
}

K_KERNEL(mp_roi_align_args, args) {
    const mp_roi_space *space = &args.space;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, space->count) {
        const k_bin bin = k_bin_of(space, i);
        const int64_t batch = args.batch[bin.region];
        TC value = 0;
        if (batch >= 0 && batch < space->batches) {
            const T *roi = (const T *)args.rois + bin.region * 4;
            const T *image = k_image_of(space, args.x, batch, bin.channel);
            side x = side_of(&args, roi[0], roi[2], space->out_w);
            side y = side_of(&args, roi[1], roi[3], space->out_h);
            x.start += (TC)bin.x * x.bin;
            y.start += (TC)bin.y * y.bin;
            value = pool(&args, image, y, x);
        }
        out[i] = T_store(value);
    }
}
