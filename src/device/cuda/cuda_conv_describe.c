/* cuda_conv_describe.c - see cuda_conv_describe.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_conv_describe.h"

#include <float.h>

void mp__conv_sizes_make(const mp_conv *shape, conv_sizes *out) {
    const int shift = shape->spatial == 1 ? 1 : 0; /* room for the height of 1 */
    *out = (conv_sizes){.dims = 2 + shape->spatial + shift, .channels_last = shape->channels_last};
    for (int i = 0; i < CONV_DIMS_MAX; i++) {
        out->x[i] = out->w[i] = out->y[i] = out->bias[i] = 1;
    }
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        out->stride[i] = out->dilation[i] = 1;
    }
    out->x[0] = out->y[0] = shape->batch;
    out->x[1] = shape->in_channels;
    out->y[1] = out->bias[1] = shape->out_channels;
    out->w[0] = shape->transposed ? shape->in_channels : shape->out_channels;
    out->w[1] = (shape->transposed ? shape->out_channels : shape->in_channels) / shape->groups;
    for (int i = 0; i < shape->spatial; i++) {
        const int at = i + shift;
        out->x[2 + at] = shape->in[i];
        out->y[2 + at] = shape->out[i];
        out->w[2 + at] = shape->kernel[i];
        out->stride[at] = shape->stride[i];
        out->dilation[at] = shape->dilation[i];
        out->pad_begin[at] = shape->pad_begin[i];
        out->pad_end[at] = shape->pad_end[i];
    }
}

static dnn_descriptor tensor(dnn_builder *b, int64_t uid, cudnnDataType_t type, const conv_sizes *s,
                             const int64_t *size, bool is_virtual) {
    int64_t stride[CONV_DIMS_MAX];
    int64_t step = s->channels_last ? size[1] : 1;
    for (int i = s->dims - 1; i >= 0; i--) {
        if (i == 1 && s->channels_last) {
            stride[i] = 1;
        } else {
            stride[i] = step;
            step *= size[i];
        }
    }
    return mp__dnn_tensor(b, uid, type, s->dims, size, stride, is_virtual);
}

static dnn_descriptor convolution(dnn_builder *b, const conv_sizes *s, cudnnDataType_t compute) {
    const dnn_descriptor d = mp__dnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int spatial = s->dims - 2;
    mp__dnn_set_int(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, spatial);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, s->pad_begin);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, s->pad_end);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, s->dilation);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, s->stride);
    mp__dnn_finish(b, d);
    return d;
}

/* What cuDNN calls the parts of a convolution, and of the gradient of a forward one with respect to
 * its input, which a transposed one is: from the x of ours, that one's result, to our y. */
typedef struct direction {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t kind, x, w, y, alpha, beta;
} direction;

static const direction forward = {
    .operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    .kind = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
};

static const direction backward = {
    .operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    .kind = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
};

static dnn_descriptor convolve(dnn_builder *b, const direction *names, dnn_descriptor kind,
                               dnn_descriptor x, dnn_descriptor w, dnn_descriptor y) {
    static const float one = 1.0F, zero = 0.0F;
    const dnn_descriptor d = mp__dnn_make(b, names->operation);
    mp__dnn_set_child(b, d, names->kind, kind);
    mp__dnn_set_child(b, d, names->x, x);
    mp__dnn_set_child(b, d, names->w, w);
    mp__dnn_set_child(b, d, names->y, y);
    mp__dnn_set(b, d, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    mp__dnn_set(b, d, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    mp__dnn_finish(b, d);
    return d;
}

typedef struct activation {
    cudnnPointwiseMode_t mode;
    double low, high, slope; /* of a rectifier */
} activation;

/* Whether cuDNN has it. */
static bool activation_find(const mp_conv *shape, activation *out) {
    *out = (activation){.mode = CUDNN_POINTWISE_RELU_FWD, .high = FLT_MAX};
    switch (shape->activation) {
    case MP_ACTIVATION_NONE:
    case MP_ACTIVATION_RELU:
        return true;
    case MP_ACTIVATION_LEAKY_RELU:
        out->slope = (double)shape->alpha;
        return true;
    case MP_ACTIVATION_CLIP:
        out->high = (double)shape->beta;
        return shape->alpha == 0;
    case MP_ACTIVATION_SIGMOID:
        out->mode = CUDNN_POINTWISE_SIGMOID_FWD;
        return true;
    case MP_ACTIVATION_SILU:
        out->mode = CUDNN_POINTWISE_SWISH_FWD;
        return true;
    case MP_ACTIVATION_GELU:
        out->mode = CUDNN_POINTWISE_GELU_FWD;
        return true;
    case MP_ACTIVATION_TANH: /* cuDNN's is NaN for large numbers */
    case MP_ACTIVATION_GELU_TANH:
    case MP_ACTIVATION_HARD_SIGMOID:
    case MP_ACTIVATION_HARD_SWISH:
    case MP_ACTIVATION_SWISH:
    case MP_ACTIVATION_OTHER:
        return false;
    }
    return false;
}

static dnn_descriptor activate(dnn_builder *b, const mp_conv *shape, cudnnDataType_t compute,
                               dnn_descriptor x, dnn_descriptor y) {
    const cudnnNanPropagation_t nan_stays = CUDNN_PROPAGATE_NAN;
    activation how;
    const dnn_descriptor kind = mp__dnn_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    (void)activation_find(shape, &how);
    mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &how.mode);
    mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                &nan_stays);
    if (shape->activation == MP_ACTIVATION_CLIP) {
        mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &how.low);
        mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &how.high);
    } else if (shape->activation == MP_ACTIVATION_LEAKY_RELU) {
        mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1,
                    &how.slope);
    }
    mp__dnn_finish(b, kind);
    return mp__dnn_operate(b, kind, x, NULL, y);
}

bool mp__conv_graph_is_possible(const mp_conv *shape, int64_t extent) {
    activation how;
    return extent == EXTENT_BARE || (extent == EXTENT_BIAS && shape->bias) ||
           (extent == EXTENT_WHOLE && mp_conv_has_epilogue(shape) && activation_find(shape, &how));
}

dnn_descriptor mp__conv_graph_build(dnn_builder *b, cudnnHandle_t handle, const mp_conv *shape,
                                    graph_extent extent) {
    const cuda_type *type = mp__cuda_type_find(shape->type);
    const cudnnDataType_t compute = type->dnn_compute;
    const bool bias = extent != EXTENT_BARE && shape->bias;
    const bool residual = extent == EXTENT_WHOLE && shape->residual;
    const bool active = extent == EXTENT_WHOLE && shape->activation != MP_ACTIVATION_NONE;
    conv_sizes s;
    mp__conv_sizes_make(shape, &s);
    const dnn_descriptor x = tensor(b, UID_X, type->dnn, &s, s.x, false);
    const dnn_descriptor w = tensor(b, UID_W, type->dnn, &s, s.w, false);
    const dnn_descriptor y = tensor(b, UID_Y, type->dnn, &s, s.y, false);
    dnn_descriptor operations[4];
    int count = 0;
    dnn_descriptor sum =
        bias || residual || active ? tensor(b, UID_CONV, compute, &s, s.y, true) : y;
    const dnn_descriptor kind = convolution(b, &s, compute);
    operations[count++] = convolve(b, shape->transposed ? &backward : &forward, kind, x, w, sum);
    if (bias) {
        const dnn_descriptor values = tensor(b, UID_BIAS, type->dnn, &s, s.bias, false);
        const dnn_descriptor to =
            residual || active ? tensor(b, UID_BIASED, compute, &s, s.y, true) : y;
        operations[count++] = mp__dnn_pointwise(b, CUDNN_POINTWISE_ADD, compute, sum, values, to);
        sum = to;
    }
    const dnn_descriptor more =
        residual ? tensor(b, UID_RESIDUAL, type->dnn, &s, s.y, false) : NULL;
    const dnn_descriptor last = residual && active ? tensor(b, UID_SUM, compute, &s, s.y, true) : y;
    const bool behind = residual && shape->residual_behind;
    if (residual && !behind) {
        operations[count++] = mp__dnn_pointwise(b, CUDNN_POINTWISE_ADD, compute, sum, more, last);
        sum = last;
    }
    if (active) {
        operations[count++] = activate(b, shape, compute, sum, behind ? last : y);
    }
    if (behind) {
        operations[count++] = mp__dnn_pointwise(b, CUDNN_POINTWISE_ADD, compute, last, more, y);
    }
    return mp__dnn_operation_graph(b, handle, count, operations);
}
