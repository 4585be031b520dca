/* pick_args.h - arguments of the kernels that pick or make each element by where it lies.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PICK_ARGS_H
#define MP_KERNEL_PICK_ARGS_H

#include "kernel/core/index_args.h"

/* out = x, or `one` where x is NULL, between the diagonals `low` and `high`; 0 beside them. */
typedef struct mp_band_args {
    const void *x;
    void *out;
    int64_t count;
    int64_t low, high; /* inclusive; diagonal 0 is the main one, those above it are positive */
    uint64_t one;      /* the bytes of an element */
    k_layout layout;   /* view 0: the number of the diagonal */
} mp_band_args;

/* out[o][c][i] = values[indices[o][i] == c] */
typedef struct mp_one_hot_args {
    const void *indices, *values;
    void *out;
    int64_t count, depth;
    int32_t index_type; /* ONNX's number of an element type */
    int32_t unused;
    k_layout layout; /* of o, c, i; view 0: indices, view 1: c */
} mp_one_hot_args;

/* The first lengths[b] steps of time are read from the last to the first. */
typedef struct mp_reverse_args {
    const void *x;
    const int64_t *lengths;
    void *out;
    int64_t count;
    int64_t time;    /* steps */
    int64_t stride;  /* between them */
    k_layout layout; /* view 0: b, view 1: the step */
} mp_reverse_args;

/* out = x * scale + bias[channel], for some of the channels */
enum { K_SCALER_CHANNELS = 256 };
typedef struct mp_image_scaler_args {
    const void *x;
    void *out;
    int64_t count;
    float scale;
    int32_t unused;
    k_layout layout; /* view 0: x and out, view 1: the entry of `bias` */
    float bias[K_SCALER_CHANNELS];
} mp_image_scaler_args;

/* out[n][place] = sum of x[n][k][block] over all k, block that show this place of the image */
typedef struct mp_col2im_args {
    const void *x;
    void *out;
    int64_t count;
    int64_t taps;   /* elements of a block */
    int64_t blocks; /* how many there are of each channel */
    int32_t rank;   /* of the image, up to K_RANK_MAX - 2 */
    int32_t unused;
    int64_t image[K_RANK_MAX], kernel[K_RANK_MAX], across[K_RANK_MAX]; /* across: blocks */
    int64_t stride[K_RANK_MAX], dilation[K_RANK_MAX], pad[K_RANK_MAX];
} mp_col2im_args;

#endif
