/* channel_args.h - arguments of kernels that treat each channel of a tensor in its own way.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_CHANNEL_ARGS_H
#define MP_KERNEL_CHANNEL_ARGS_H

#include "kernel/core/index_args.h"

/* Element i is of channel i / inner % channels: `inner` is 1 where channels are last. */
typedef struct k_channels {
    int64_t channels, inner;
    int32_t wide; /* there are 2^31 elements or more: dividers are not used */
    int32_t unused;
    k_divider by_inner, by_channels;
} k_channels;

/* out[c] = scale[c] / sqrt(var[c] + epsilon), out[channels + c] = bias[c] - mean[c] * out[c] */
typedef struct mp_batch_norm_fold_args {
    const void *scale, *bias, *mean, *var;
    void *out;
    int64_t channels;
    float epsilon;
    int32_t unused;
} mp_batch_norm_fold_args;

/* out[c] = mean of channel c, out[channels + c] = mean of the squared distances from it */
typedef struct mp_batch_norm_stats_args {
    const void *x;
    void *out;
    int64_t channels, outer, inner; /* x is [outer][channels][inner] */
} mp_batch_norm_stats_args;

/* out_mean[c] = mean[c] * momentum + found[c] * (1 - momentum); the same for var */
typedef struct mp_batch_norm_running_args {
    const void *mean, *var, *found;
    void *out_mean, *out_var; /* NULL where nobody asks */
    int64_t channels;
    float momentum;
    int32_t unused;
} mp_batch_norm_running_args;

/* out[i] = x[i] * factors[c] + factors[channels + c], in the type of arithmetic */
typedef struct mp_channel_affine_args {
    const void *x, *factors;
    void *out;
    int64_t channels;
    k_walk walk; /* views: 0 x, 1 the factors, and likewise the summands */
} mp_channel_affine_args;

/* Neighbouring channels of a pixel that a lane may have, and how many on either side count then. */
enum { K_LRN_CHANNELS = 4, K_LRN_SIDE = 2 };

/* out = x / (bias + alpha / size * sum of squares of `size` channels around)^beta */
typedef struct mp_lrn_args {
    const void *x;
    void *out;
    int64_t count;
    k_channels channels;
    int64_t before, after; /* channels that count on either side */
    float share;           /* alpha / size */
    float bias, beta;
    int32_t parts; /* of K_LRN_CHANNELS, that the channels are cut into; 0: by single elements */
    k_divider by_parts;
    int64_t items; /* parts of all pixels, or elements */
} mp_lrn_args;

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

#endif
