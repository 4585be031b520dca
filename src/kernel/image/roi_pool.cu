/* roi_pool.cu - the largest pixel of each bin of a region, whose edges are rounded to pixels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/roi.h"

/* Pixels [first, last) of a bin within the image. */
typedef struct extent {
    int64_t first, last;
} extent;

/* A coordinate as a pixel, kept where numbers of pixels can be added. */
K_FN int64_t pixel(T at, float scale) {
    const TC limit = (TC)1e9;
    const TC scaled = K_M(round)(T_load(at) * (TC)scale);
    return scaled > limit ? (int64_t)limit : scaled > -limit ? (int64_t)scaled : -(int64_t)limit;
}

K_FN int64_t within(int64_t at, int64_t size) {
    return at < 0 ? 0 : at < size ? at : size;
}

K_FN extent extent_of(int64_t low, int64_t high, int64_t bin, int64_t bins, int64_t size) {
    const int64_t length = high - low + 1 > 1 ? high - low + 1 : 1;
    const TC step = (TC)length / (TC)bins;
    const extent out = {within((int64_t)K_M(floor)((TC)bin * step) + low, size),
                        within((int64_t)K_M(ceil)((TC)(bin + 1) * step) + low, size)};
    return out;
}

K_KERNEL(mp_roi_pool_args, args) {
    const mp_roi_space *space = &args.space;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, space->count) {
        const k_bin bin = k_bin_of(space, i);
        const T *roi = (const T *)args.rois + bin.region * 5;
        const TC named = T_load(roi[0]);
        TC most = 0; /* of an empty bin */
        if (named >= 0 && named < (TC)space->batches) {
            const T *image = k_image_of(space, args.x, (int64_t)named, bin.channel);
            const extent x = extent_of(pixel(roi[1], args.scale), pixel(roi[3], args.scale), bin.x,
                                       space->out_w, space->in_w);
            const extent y = extent_of(pixel(roi[2], args.scale), pixel(roi[4], args.scale), bin.y,
                                       space->out_h, space->in_h);
            if (x.first < x.last && y.first < y.last) {
                most = -(TC)K_INF;
            }
            for (int64_t row = y.first; row < y.last; row++) {
                for (int64_t column = x.first; column < x.last; column++) {
                    const TC value = T_load(image[row * space->in_w + column]);
                    most = value > most ? value : most;
                }
            }
        }
        out[i] = T_store(most);
    }
}
