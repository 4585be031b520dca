/* cuda_conv_describe.h - a convolution, and what follows it, in the terms of cuDNN's operation
 * graphs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_CONV_DESCRIBE_H
#define MP_DEVICE_CUDA_CONV_DESCRIBE_H

#include "device/cuda/cuda_conv.h"
#include "device/cuda/cuda_dnn_graph.h"

/* Sizes as cuDNN sees them: a line is a plane of height 1. */
typedef struct conv_sizes {
    int dims;
    bool channels_last;
    int64_t x[CONV_DIMS_MAX], w[CONV_DIMS_MAX], y[CONV_DIMS_MAX], bias[CONV_DIMS_MAX];
    int64_t pad_begin[MP_CONV_SPATIAL_MAX], pad_end[MP_CONV_SPATIAL_MAX];
    int64_t stride[MP_CONV_SPATIAL_MAX], dilation[MP_CONV_SPATIAL_MAX];
} conv_sizes;

void mp__conv_sizes_make(const mp_conv *shape, conv_sizes *out);

/* Names of the graph's tensors. */
enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_RESIDUAL, UID_CONV, UID_BIASED, UID_SUM };

/* What a graph has behind the convolution. */
typedef enum graph_extent { EXTENT_BARE, EXTENT_BIAS, EXTENT_WHOLE } graph_extent;

/* Whether there is such a graph. */
bool mp__conv_graph_is_possible(const mp_conv *shape, int64_t extent);

/* conv [-> + bias] [-> + residual] [-> activation] [-> + residual]; only the last result is memory.
 */
dnn_descriptor mp__conv_graph_build(dnn_builder *b, cudnnHandle_t handle, const mp_conv *shape,
                                    graph_extent extent);

#endif
