/* cuda_conv.h - a convolution by cuDNN's own functions: what its files share.
 *
 * cuda_conv_frame.c brings the sizes into cuDNN's form, cuda_conv_choose.c picks an algorithm, and
 * cuda_conv.c prepares, runs and releases. Convolutions that cuDNN has a graph for do not come here
 * (cuda_conv_graph.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_CONV_H
#define MP_DEVICE_CUDA_CONV_H

#include "device/cuda/cuda_private.h"

#include <stdatomic.h>

enum { CONV_DIMS_MAX = 2 + MP_CONV_SPATIAL_MAX, CUDA_CONV_NUMBERS = 40 };

/* The convolution as cuDNN is asked for it, forward or transposed: "wide" is the side that stride
 * and kernel walk over (x, or y of a transposed one), "narrow" the other. */
typedef struct conv_frame {
    int spatial;                                    /* 2 or 3 */
    int wide[CONV_DIMS_MAX], narrow[CONV_DIMS_MAX]; /* batch, channels, sizes */
    int weights[CONV_DIMS_MAX];
    int pad[MP_CONV_SPATIAL_MAX], stride[MP_CONV_SPATIAL_MAX], dilation[MP_CONV_SPATIAL_MAX];
    bool windowed; /* `wide` is a buffer of ours, without padding */
} conv_frame;

typedef struct cuda_conv {
    cuda_math base;
    mp_conv shape;
    conv_frame frame;
    cudnnTensorDescriptor_t wide, narrow, bias;
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t desc;
    cudnnActivationDescriptor_t activation;
    int algo; /* a cudnnConvolutionFwdAlgo_t or, transposed, a cudnnConvolutionBwdDataAlgo_t */
    size_t window_size; /* bytes of the buffer in front of cuDNN's workspace */
    size_t dnn_workspace;
    atomic_bool fused; /* cuDNN adds the bias; given up when it turns out that it cannot */
    mp_kernel *window;
} cuda_conv;

/* What the window kernel sees as one element of a line: a pixel with all its channels. */
static inline int64_t conv_line_unit(const mp_conv *shape, int64_t channels) {
    return shape->channels_last ? channels : 1;
}

/* Strict float arithmetic unless the caller allows TF32, which the default mode may use. */
static inline cudnnMathType_t conv_math_wanted(const mp_conv *shape) {
    return shape->type == MP_F32 && shape->tf32 ? CUDNN_DEFAULT_MATH
                                                : mp__cuda_type_find(shape->type)->dnn_math;
}

/* Fails: UNSUPPORTED where a size does not fit 32 bits. */
mp_status mp__cuda_conv_frame(const mp_conv *shape, conv_frame *out);

/* All of a convolution, as what a question (cuda_choice.h) is about; how many numbers. */
int mp__cuda_conv_numbers(const mp_conv *shape, int64_t out[CUDA_CONV_NUMBERS]);

/* Settles on an algorithm, its math and its workspace, once the descriptors are made. Blocks: while
 * algorithms are timed, where the shape asks for that. Fails: UNSUPPORTED where none is within the
 * limits. */
mp_status mp__cuda_conv_choose(cuda_device *device, cuda_conv *conv, cudnnHandle_t handle);

#endif
