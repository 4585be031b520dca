/* roi.h - which bin of which region an element of the output is, and the image that it is made
 * from.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROI_H
#define MP_KERNEL_ROI_H

#include "kernel/core/prelude.h"
#include "kernel/image/window_args.h"

typedef struct k_bin {
    int64_t x, y, channel, region;
} k_bin;

K_FN k_bin k_bin_of(const mp_roi_space *space, int64_t i) {
    const int64_t plane = i / space->out_w / space->out_h;
    const k_bin bin = {i % space->out_w, i / space->out_w % space->out_h, plane % space->channels,
                       plane / space->channels};
    return bin;
}

/* One channel of an image. */
K_FN const T *k_image_of(const mp_roi_space *space, const void *x, int64_t batch, int64_t channel) {
    return (const T *)x + (batch * space->channels + channel) * space->in_h * space->in_w;
}

#endif
