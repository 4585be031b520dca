/* roi_args.h - arguments of the kernels that pool regions of images.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROI_ARGS_H
#define MP_KERNEL_ROI_ARGS_H

#include "kernel/core/types.h"

/* A box may lie anywhere: its bins are sampled at this many points along a side at most. */
enum { K_ROI_SAMPLES_MAX = 4096 };

/* x is [batches][channels][in_h][in_w], out is [regions][channels][out_h][out_w]. */
typedef struct mp_roi_space {
    int64_t count; /* of out */
    int64_t batches, channels, in_h, in_w, out_h, out_w;
} mp_roi_space;

typedef struct mp_roi_align_args {
    const void *x, *rois; /* rois: x1, y1, x2, y2 of each region */
    const int64_t *batch; /* of each region */
    void *out;
    mp_roi_space space;
    float scale;
    int32_t samples;    /* along a side of a bin; 0: as many as it has pixels */
    int32_t half_pixel; /* pixels have their centres at halves */
    int32_t largest;    /* of the samples, instead of their mean */
} mp_roi_align_args;

typedef struct mp_roi_pool_args {
    const void *x, *rois; /* rois: batch, x1, y1, x2, y2 of each region */
    void *out;
    mp_roi_space space;
    float scale;
    int32_t unused;
} mp_roi_pool_args;

#endif
