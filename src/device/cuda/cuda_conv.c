/* cuda_conv.c - convolutions and transposed convolutions through cuDNN.
 *
 * cuDNN pads both ends of a dimension alike and derives the output's size itself. Where that is not
 * what is wanted, a window kernel (cuda_glue.h) helps out: before a forward convolution it copies x
 * into a padded x of exactly the size needed, after a transposed one it cuts y out of the full
 * result. The same kernel adds the bias where cuDNN has no fused form.
 *
 * The workspace is [padded x or full y][cuDNN's own]. A line is seen as a plane of height 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_conv.h"
#include "device/cuda/cuda_glue.h"

#include <limits.h>
#include <stdlib.h>

#define DNN_TRY(name, call)                             \
    do {                                                \
        const cudnnStatus_t try_result = mp__dnn.call;  \
        if (try_result != CUDNN_STATUS_SUCCESS) {       \
            return mp__cuda_dnn_fail(try_result, name); \
        }                                               \
    } while (0)

static mp_status shape_check(const mp_conv *shape) {
    bool sound = shape->spatial >= 1 && shape->spatial <= MP_CONV_SPATIAL_MAX &&
                 shape->batch >= 1 && shape->groups >= 1 && shape->in_channels >= 1 &&
                 shape->out_channels >= 1 && shape->in_channels % shape->groups == 0 &&
                 shape->out_channels % shape->groups == 0;
    for (int i = 0; sound && i < shape->spatial; i++) {
        sound = shape->in[i] >= 1 && shape->out[i] >= 1 && shape->kernel[i] >= 1 &&
                shape->stride[i] >= 1 && shape->dilation[i] >= 1 && shape->in[i] <= INT_MAX &&
                shape->out[i] <= INT_MAX && shape->kernel[i] <= INT_MAX &&
                shape->stride[i] <= INT_MAX && shape->dilation[i] <= INT_MAX &&
                shape->pad_begin[i] <= INT_MAX && shape->pad_begin[i] >= -INT_MAX;
    }
    if (!sound) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a convolution of %d dimensions with batch %lld, %lld to %lld channels in "
                       "%lld groups is not possible",
                       (int)shape->spatial, (long long)shape->batch, (long long)shape->in_channels,
                       (long long)shape->out_channels, (long long)shape->groups);
    }
    if (mp__cuda_type_find(shape->type) == NULL) {
        return MP_FAIL(UNSUPPORTED, "convolutions of type %s are not available on a GPU",
                       mp_dtype_name(shape->type));
    }
    return MP_OK;
}

/* ---- descriptors ---- */

static mp_status tensors_make(cuda_conv *conv) {
    const conv_frame *form = &conv->frame;
    const cudnnDataType_t data = mp__cuda_type_find(conv->shape.type)->dnn;
    const int dims = 2 + form->spatial;
    const int bias_sizes[CONV_DIMS_MAX] = {1, (int)conv->shape.out_channels, 1, 1, 1};
    const cudnnTensorFormat_t format =
        conv->shape.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    DNN_TRY("cudnnCreateTensorDescriptor", tensor_create(&conv->wide));
    DNN_TRY("cudnnCreateTensorDescriptor", tensor_create(&conv->narrow));
    DNN_TRY("cudnnCreateTensorDescriptor", tensor_create(&conv->bias));
    DNN_TRY("cudnnCreateFilterDescriptor", filter_create(&conv->weights));
    DNN_TRY("cudnnSetTensorNdDescriptorEx", tensor_set(conv->wide, format, data, dims, form->wide));
    DNN_TRY("cudnnSetTensorNdDescriptorEx",
            tensor_set(conv->narrow, format, data, dims, form->narrow));
    DNN_TRY("cudnnSetTensorNdDescriptorEx", tensor_set(conv->bias, format, data, dims, bias_sizes));
    DNN_TRY("cudnnSetFilterNdDescriptor",
            filter_set(conv->weights, data, format, dims, form->weights));
    return MP_OK;
}

static mp_status descs_make(cuda_conv *conv) {
    const conv_frame *form = &conv->frame;
    MP_TRY(tensors_make(conv));
    DNN_TRY("cudnnCreateConvolutionDescriptor", conv_create(&conv->desc));
    DNN_TRY("cudnnSetConvolutionNdDescriptor",
            conv_set(conv->desc, form->spatial, form->pad, form->stride, form->dilation,
                     CUDNN_CROSS_CORRELATION, mp__cuda_type_find(conv->shape.type)->dnn_compute));
    DNN_TRY("cudnnSetConvolutionGroupCount", conv_groups(conv->desc, (int)conv->shape.groups));
    DNN_TRY("cudnnSetConvolutionMathType", conv_math(conv->desc, conv_math_wanted(&conv->shape)));
    DNN_TRY("cudnnCreateActivationDescriptor", activation_create(&conv->activation));
    DNN_TRY("cudnnSetActivationDescriptor",
            activation_set(conv->activation, CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN, 0.0));
    return MP_OK;
}

/* ---- preparing ---- */

static size_t rounded(size_t size) {
    return MP_ALIGN_UP(size, MP_ALIGNMENT);
}

static mp_status window_measure(cuda_conv *conv) {
    size_t size = mp_dtype_size(conv->shape.type);
    for (int i = 0; i < 2 + conv->frame.spatial; i++) {
        if (__builtin_mul_overflow(size, (size_t)conv->frame.wide[i], &size)) {
            return MP_FAIL(UNSUPPORTED, "its padded tensor is larger than any memory");
        }
    }
    conv->window_size = rounded(size);
    return MP_OK;
}

/* cuDNN fuses a bias alone into forward convolutions by one algorithm. */
static bool fusible(const cuda_conv *conv) {
    return !conv->shape.transposed && conv->shape.bias &&
           conv->algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
}

static mp_status conv_fill(cuda_device *device, cuda_conv *conv) {
    cudnnHandle_t handle = NULL;
    MP_TRY(mp__cuda_conv_frame(&conv->shape, &conv->frame));
    MP_TRY(descs_make(conv));
    MP_TRY(mp__cuda_dnn_take(device, &handle));
    const mp_status status = mp__cuda_conv_choose(device, conv, handle);
    mp__cuda_dnn_give(device, handle);
    MP_TRY(status);
    atomic_store(&conv->fused, fusible(conv));
    if (conv->frame.windowed) {
        MP_TRY(window_measure(conv));
    }
    if (conv->frame.windowed || conv->shape.bias) {
        MP_TRY(mp__cuda_glue_load(device, GLUE_WINDOW, conv->shape.type, &conv->window));
    }
    conv->base.workspace = conv->window_size + conv->dnn_workspace;
    return MP_OK;
}

/* ---- running ---- */

typedef struct places { /* addresses of one run */
    mp_addr wide, narrow, weights, bias, workspace;
} places;

static cudnnStatus_t forward_fused(const cuda_conv *conv, cudnnHandle_t handle, const places *at,
                                   const void *one, const void *zero) {
    return mp__dnn.forward_fused(
        handle, one, conv->wide, (const void *)at->wide, conv->weights, (const void *)at->weights,
        conv->desc, (cudnnConvolutionFwdAlgo_t)conv->algo, (void *)at->workspace,
        conv->dnn_workspace, zero, conv->narrow, (const void *)at->narrow, conv->bias,
        (const void *)at->bias, conv->activation, conv->narrow, (void *)at->narrow);
}

static cudnnStatus_t forward_run(const cuda_conv *conv, cudnnHandle_t handle, const places *at,
                                 const void *one, const void *zero) {
    return mp__dnn.forward(handle, one, conv->wide, (const void *)at->wide, conv->weights,
                           (const void *)at->weights, conv->desc,
                           (cudnnConvolutionFwdAlgo_t)conv->algo, (void *)at->workspace,
                           conv->dnn_workspace, zero, conv->narrow, (void *)at->narrow);
}

static cudnnStatus_t backward_run(const cuda_conv *conv, cudnnHandle_t handle, const places *at,
                                  const void *one, const void *zero) {
    return mp__dnn.backward(handle, one, conv->weights, (const void *)at->weights, conv->narrow,
                            (const void *)at->narrow, conv->desc,
                            (cudnnConvolutionBwdDataAlgo_t)conv->algo, (void *)at->workspace,
                            conv->dnn_workspace, zero, conv->wide, (void *)at->wide);
}

/* Queues cuDNN's part; `*tail` says whether the bias is still to come. */
static mp_status library_run(cuda_device *device, mp_stream *stream, cuda_conv *conv,
                             const places *at, bool *tail) {
    static const float one32 = 1.0F;
    static const float zero32 = 0.0F;
    static const double one64 = 1.0;
    static const double zero64 = 0.0;
    const bool wide = conv->shape.type == MP_F64;
    const void *one = wide ? (const void *)&one64 : &one32;
    const void *zero = wide ? (const void *)&zero64 : &zero32;
    cudnnHandle_t handle = NULL;
    MP_TRY(mp__cuda_stream_dnn(device, stream, &handle));
    if (atomic_load(&conv->fused)) {
        if (forward_fused(conv, handle, at, one, zero) == CUDNN_STATUS_SUCCESS) {
            *tail = false;
            return MP_OK;
        }
        /* Refused before anything was queued, so the plain form can follow at once. */
        atomic_store(&conv->fused, false);
    }
    *tail = conv->shape.bias;
    const cudnnStatus_t result = conv->shape.transposed ? backward_run(conv, handle, at, one, zero)
                                                        : forward_run(conv, handle, at, one, zero);
    return result == CUDNN_STATUS_SUCCESS ? MP_OK : mp__cuda_dnn_fail(result, "the convolution");
}

static void sizes_set(long long out[MP_CONV_SPATIAL_MAX], const int64_t *sizes, int spatial) {
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        const int lead = MP_CONV_SPATIAL_MAX - spatial;
        out[i] = i < lead ? 1 : sizes[i - lead];
    }
}

static void frame_sizes_set(long long out[MP_CONV_SPATIAL_MAX], const conv_frame *form) {
    int64_t sizes[MP_CONV_SPATIAL_MAX] = {0};
    for (int i = 0; i < form->spatial; i++) {
        sizes[i] = form->wide[2 + i];
    }
    sizes_set(out, sizes, form->spatial);
}

static void offsets_set(glue_window_args *args, const mp_conv *shape, int sign) {
    const int lead = MP_CONV_SPATIAL_MAX - shape->spatial;
    for (int i = 0; i < shape->spatial; i++) {
        args->offset[lead + i] = sign * shape->pad_begin[i];
    }
}

/* Sizes and offsets are of pixels so far; the kernel counts in elements. */
static void lines_widen(glue_window_args *args, const mp_conv *shape, int64_t channels) {
    const int64_t unit = conv_line_unit(shape, channels);
    args->x_size[MP_CONV_SPATIAL_MAX - 1] *= unit;
    args->y_size[MP_CONV_SPATIAL_MAX - 1] *= unit;
    args->offset[MP_CONV_SPATIAL_MAX - 1] *= unit;
    args->planes = shape->batch * channels / unit;
    args->channels = channels;
    args->channels_last = shape->channels_last;
}

/* x into the padded buffer. */
static mp_status pad_run(cuda_device *device, mp_stream *stream, const cuda_conv *conv, mp_addr x,
                         mp_addr buffer) {
    const mp_conv *shape = &conv->shape;
    glue_window_args args = {.x = x, .y = buffer};
    sizes_set(args.x_size, shape->in, shape->spatial);
    frame_sizes_set(args.y_size, &conv->frame);
    offsets_set(&args, shape, -1);
    lines_widen(&args, shape, shape->in_channels);
    return mp__cuda_glue_window(device, stream, conv->window, &args);
}

/* The full result, or y itself, into y, with the bias. */
static mp_status tail_run(cuda_device *device, mp_stream *stream, const cuda_conv *conv,
                          const mp_addr *operands, mp_addr buffer) {
    const mp_conv *shape = &conv->shape;
    glue_window_args args = {.x = buffer,
                             .y = operands[MP_CONV_Y],
                             .bias = shape->bias ? operands[MP_CONV_BIAS] : 0,
                             .in_place = buffer == 0};
    sizes_set(args.y_size, shape->out, shape->spatial);
    frame_sizes_set(args.x_size, &conv->frame);
    offsets_set(&args, shape, 1);
    lines_widen(&args, shape, shape->out_channels);
    return mp__cuda_glue_window(device, stream, conv->window, &args);
}

static mp_status conv_run(cuda_device *device, mp_stream *stream, cuda_math *math,
                          const mp_addr *operands, mp_addr workspace) {
    cuda_conv *conv = (cuda_conv *)(void *)math;
    const bool transposed = conv->shape.transposed;
    const mp_addr buffer = conv->frame.windowed ? workspace : 0;
    const mp_addr x = operands[MP_CONV_X];
    const mp_addr y = operands[MP_CONV_Y];
    const places at = {.wide = buffer != 0  ? buffer
                               : transposed ? y
                                            : x,
                       .narrow = transposed ? x : y,
                       .weights = operands[MP_CONV_W],
                       .bias = operands[MP_CONV_BIAS],
                       .workspace = workspace + conv->window_size};
    bool tail = false;
    if (buffer != 0 && !transposed) {
        MP_TRY(pad_run(device, stream, conv, x, buffer));
    }
    MP_TRY(library_run(device, stream, conv, &at, &tail));
    if (transposed && buffer != 0) {
        return tail_run(device, stream, conv, operands, buffer);
    }
    return tail ? tail_run(device, stream, conv, operands, 0) : MP_OK;
}

static void conv_release(cuda_device *device, cuda_math *math) {
    cuda_conv *conv = (cuda_conv *)(void *)math;
    const cudnnTensorDescriptor_t tensors[] = {conv->wide, conv->narrow, conv->bias};
    for (size_t i = 0; i < MP_COUNT_OF(tensors); i++) {
        if (tensors[i] != NULL) {
            (void)mp__dnn.tensor_destroy(tensors[i]);
        }
    }
    if (conv->weights != NULL) {
        (void)mp__dnn.filter_destroy(conv->weights);
    }
    if (conv->desc != NULL) {
        (void)mp__dnn.conv_destroy(conv->desc);
    }
    if (conv->activation != NULL) {
        (void)mp__dnn.activation_destroy(conv->activation);
    }
    if (conv->window != NULL) {
        mp__cuda_kernel_unload(&device->base, conv->window);
    }
    free(conv);
}

static const cuda_math_ops conv_ops = {.run = conv_run, .release = conv_release};

/* cuDNN is an extra that a machine may do without; the other libraries are not. */
static mp_status library_need(void) {
    const mp_status status = mp__cuda_need(CUDA_LIB_DNN);
    return status == MP_NOT_FOUND
               ? mp__fail(MP_UNSUPPORTED, "convolutions on a GPU need cuDNN 9: %s",
                          mp_error_message())
               : status;
}

static mp_status conv_make(cuda_device *device, const mp_conv *shape, cuda_math **out) {
    cuda_conv *conv = calloc(1, sizeof *conv);
    if (conv == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a convolution");
    }
    conv->base.ops = &conv_ops;
    conv->shape = *shape;
    mp_status status = conv_fill(device, conv);
    if (status != MP_OK) {
        conv_release(device, &conv->base);
        /* What cuDNN refuses with channels last, the caller may have the other way. */
        return shape->channels_last && status != MP_OUT_OF_MEMORY
                   ? mp__fail(MP_UNSUPPORTED, "with channels last: %s", mp_error_message())
                   : status;
    }
    *out = &conv->base;
    return MP_OK;
}

mp_status mp__cuda_conv_prepare(mp_device *self, const mp_conv *shape, mp_math **out, bool *whole) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    cuda_math *made = NULL;
    MP_TRY(shape_check(shape));
    if (mp_conv_is_apart(shape)) { /* cuDNN makes several copies where a plan makes one */
        return mp__fail(MP_UNSUPPORTED, "no convolution takes pixels that lie apart");
    }
    MP_TRY(library_need());
    MP_TRY(mp__cuda_enter(device, &scope));
    mp_status status = mp__cuda_conv_graph_prepare(device, shape, &made, whole);
    if (status == MP_UNSUPPORTED) {
        *whole = !mp_conv_has_epilogue(shape);
        status = conv_make(device, shape, &made);
    }
    mp__cuda_exit(&scope);
    if (status != MP_OK) {
        return mp__fail(status, "convolution of %s, %lld to %lld channels: %s",
                        mp_dtype_name(shape->type), (long long)shape->in_channels,
                        (long long)shape->out_channels, mp_error_message());
    }
    *out = (mp_math *)(void *)made;
    return MP_OK;
}
