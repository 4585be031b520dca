/* grid_sample_args.h - arguments of grid_sample.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GRID_SAMPLE_ARGS_H
#define MP_KERNEL_GRID_SAMPLE_ARGS_H

#include "kernel/core/types.h"

enum { K_SAMPLE_DIMS = 3 };

typedef enum k_sample_mode {
    K_SAMPLE_LINEAR,
    K_SAMPLE_NEAREST,
    K_SAMPLE_CUBIC, /* two dimensions only */
} k_sample_mode;

typedef enum k_sample_padding {
    K_SAMPLE_ZEROS,
    K_SAMPLE_BORDER,
    K_SAMPLE_REFLECTION,
} k_sample_padding;

/* Dimensions are those of ONNX, the one that the grid names last in front: in[0] is depth, or 1
 * where there are two. */
typedef struct mp_grid_sample_args {
    const void *x, *grid; /* grid is [batch][points][dims], x last-dimension-first */
    void *out;
    int64_t count;  /* of out */
    int64_t points; /* of out, in a channel of an image */
    int64_t channels;
    int64_t batch_stride, channel_stride, point_stride; /* of x */
    int64_t in[K_SAMPLE_DIMS];
    int32_t dims; /* 2 or 3 */
    int32_t mode; /* k_sample_mode */
    int32_t padding;
    int32_t align_corners;
    int32_t channels_last; /* of out */
    int32_t unused;
} mp_grid_sample_args;

#endif
