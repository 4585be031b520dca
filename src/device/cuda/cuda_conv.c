/* cuda_conv.c - convolutions and transposed convolutions through cuDNN.
 *
 * cuDNN pads both ends of a dimension alike and derives the output's size itself. Where that is not
 * what is wanted, a window kernel (cuda_glue.h) helps out: before a forward convolution it copies x
 * into a padded x of exactly the size needed, after a transposed one it cuts y out of the full
 * result. The same kernel adds bias and relu where cuDNN has no fused form.
 *
 * The workspace is [padded x or full y][cuDNN's own]. A line is seen as a plane of height 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_glue.h"
#include "device/cuda/cuda_private.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    DIMS_MAX = 2 + MP_CONV_SPATIAL_MAX,
    ALGOS_MAX = 16,
    WORKSPACE_LIMIT = 32 << 20,
    WORKSPACE_GREEDY = 512 << 20
};

/* The convolution as cuDNN is asked for it, forward or transposed: "wide" is the side that stride
 * and kernel walk over (x, or y of a transposed one), "narrow" the other. */
typedef struct frame {
    int spatial;                          /* 2 or 3 */
    int wide[DIMS_MAX], narrow[DIMS_MAX]; /* batch, channels, sizes */
    int weights[DIMS_MAX];
    int pad[MP_CONV_SPATIAL_MAX], stride[MP_CONV_SPATIAL_MAX], dilation[MP_CONV_SPATIAL_MAX];
    bool windowed; /* `wide` is a buffer of ours, without padding */
} frame;

typedef struct cuda_conv {
    cuda_math base;
    mp_conv shape;
    frame frame;
    cudnnTensorDescriptor_t wide, narrow, bias;
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t desc;
    cudnnActivationDescriptor_t activation;
    int algo; /* a cudnnConvolutionFwdAlgo_t or, transposed, a cudnnConvolutionBwdDataAlgo_t */
    size_t window_size; /* bytes of the buffer in front of cuDNN's workspace */
    size_t dnn_workspace;
    atomic_bool fused; /* cuDNN adds bias and relu; given up when it turns out that it cannot */
    mp_kernel *window;
} cuda_conv;

#define DNN_TRY(name, call)                             \
    do {                                                \
        const cudnnStatus_t try_result = mp__dnn.call;  \
        if (try_result != CUDNN_STATUS_SUCCESS) {       \
            return mp__cuda_dnn_fail(try_result, name); \
        }                                               \
    } while (0)

/* ---- the frame ---- */

static bool narrow_down(int64_t value, int *out) {
    *out = (int)value;
    return value >= 0 && value <= INT_MAX;
}

/* What cuDNN derives for the narrow side from a wide side padded alike at both ends. */
static bool plain(int64_t wide, int64_t narrow, int64_t pad, int64_t reach, int64_t stride) {
    return pad >= 0 && wide + 2 * pad >= reach && (wide + 2 * pad - reach) / stride + 1 == narrow;
}

/* The size of the wide side, unpadded, that gives exactly `narrow`. */
static int64_t full(int64_t narrow, int64_t stride, int64_t reach) {
    return (narrow - 1) * stride + reach;
}

static bool frame_sizes(const mp_conv *shape, frame *out) {
    const int64_t *wide = shape->transposed ? shape->out : shape->in;
    const int64_t *narrow = shape->transposed ? shape->in : shape->out;
    const int shift = shape->spatial == 1 ? 1 : 0; /* room for the height of 1 */
    bool fits = true;
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        out->windowed |= !plain(wide[i], narrow[i], shape->pad_begin[i], reach, shape->stride[i]);
    }
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        const int at = i + shift;
        fits &= narrow_down(out->windowed ? full(narrow[i], shape->stride[i], reach) : wide[i],
                            &out->wide[2 + at]);
        fits &= narrow_down(narrow[i], &out->narrow[2 + at]);
        fits &= narrow_down(shape->kernel[i], &out->weights[2 + at]);
        fits &= narrow_down(out->windowed ? 0 : shape->pad_begin[i], &out->pad[at]);
        fits &= narrow_down(shape->stride[i], &out->stride[at]);
        fits &= narrow_down(shape->dilation[i], &out->dilation[at]);
    }
    return fits;
}

/* What the window kernel sees as one element of a line: a pixel with all its channels. */
static int64_t line_unit(const mp_conv *shape, int64_t channels) {
    return shape->channels_last ? channels : 1;
}

/* Whether a plane, counted in elements, suits the 32-bit index of the window kernel. */
static bool planes_fit(const mp_conv *shape, const frame *form) {
    int64_t wide = line_unit(shape, form->wide[1]);
    int64_t narrow = line_unit(shape, form->narrow[1]);
    for (int i = 2; i < 2 + form->spatial; i++) {
        wide *= form->wide[i];
        narrow *= form->narrow[i];
        if (wide > INT_MAX || narrow > INT_MAX) {
            return false;
        }
    }
    return true;
}

static mp_status frame_make(const mp_conv *shape, frame *out) {
    *out = (frame){.spatial = shape->spatial == 3 ? 3 : 2};
    for (int i = 0; i < DIMS_MAX; i++) {
        out->wide[i] = out->narrow[i] = out->weights[i] = 1;
    }
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        out->stride[i] = out->dilation[i] = 1;
    }
    const int64_t wide_channels = shape->transposed ? shape->out_channels : shape->in_channels;
    const int64_t narrow_channels = shape->transposed ? shape->in_channels : shape->out_channels;
    bool fits = frame_sizes(shape, out);
    fits &= narrow_down(shape->batch, &out->wide[0]) && narrow_down(shape->batch, &out->narrow[0]);
    fits &= narrow_down(wide_channels, &out->wide[1]);
    fits &= narrow_down(narrow_channels, &out->narrow[1]);
    fits &= narrow_down(narrow_channels, &out->weights[0]);
    fits &= narrow_down(wide_channels / shape->groups, &out->weights[1]);
    if (!fits || !planes_fit(shape, out)) {
        return MP_FAIL(UNSUPPORTED, "cuDNN counts sizes in 32 bits and one is larger");
    }
    return MP_OK;
}

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

/* Strict float arithmetic unless the caller allows TF32, which the default mode may use. */
static cudnnMathType_t math_wanted(const mp_conv *shape) {
    return shape->type == MP_F32 && shape->tf32 ? CUDNN_DEFAULT_MATH
                                                : mp__cuda_type_find(shape->type)->dnn_math;
}

static mp_status tensors_make(cuda_conv *conv) {
    const frame *form = &conv->frame;
    const cudnnDataType_t data = mp__cuda_type_find(conv->shape.type)->dnn;
    const int dims = 2 + form->spatial;
    const int bias_sizes[DIMS_MAX] = {1, (int)conv->shape.out_channels, 1, 1, 1};
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
    const frame *form = &conv->frame;
    const cudnnActivationMode_t mode =
        conv->shape.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY;
    MP_TRY(tensors_make(conv));
    DNN_TRY("cudnnCreateConvolutionDescriptor", conv_create(&conv->desc));
    DNN_TRY("cudnnSetConvolutionNdDescriptor",
            conv_set(conv->desc, form->spatial, form->pad, form->stride, form->dilation,
                     CUDNN_CROSS_CORRELATION, mp__cuda_type_find(conv->shape.type)->dnn_compute));
    DNN_TRY("cudnnSetConvolutionGroupCount", conv_groups(conv->desc, (int)conv->shape.groups));
    DNN_TRY("cudnnSetConvolutionMathType", conv_math(conv->desc, math_wanted(&conv->shape)));
    DNN_TRY("cudnnCreateActivationDescriptor", activation_create(&conv->activation));
    DNN_TRY("cudnnSetActivationDescriptor",
            activation_set(conv->activation, mode, CUDNN_PROPAGATE_NAN, 0.0));
    return MP_OK;
}

/* ---- choosing an algorithm ---- */

static size_t workspace_limit(const mp_conv *shape) {
    return shape->workspace_max ? WORKSPACE_GREEDY : WORKSPACE_LIMIT;
}

/* The two directions have structs and functions of their own in cuDNN, but the same fields. */
typedef struct candidate {
    int algo;
    bool works;
    bool repeatable;
    cudnnMathType_t math;
} candidate;

#define CANDIDATE(result)                                                                    \
    (candidate) {                                                                            \
        .algo = (int)(result).algo, .works = (result).status == CUDNN_STATUS_SUCCESS,        \
        .repeatable = (result).determinism == CUDNN_DETERMINISTIC, .math = (result).mathType \
    }

/* Memory to time algorithms in. Its content does not matter, its size does: left to itself, cuDNN
 * takes all that the greediest algorithm would like. */
typedef struct trial {
    mp_addr memory; /* owned */
    size_t size;
    void *wide, *weights, *narrow, *workspace; /* within `memory` */
    size_t workspace_size;
} trial;

static size_t trial_part(size_t size) {
    return MP_ALIGN_UP(size, MP_ALIGNMENT);
}

static mp_status trial_open(cuda_device *device, const cuda_conv *conv, trial *out) {
    size_t wide = 0;
    size_t weights = 0;
    size_t narrow = 0;
    if (mp__dnn.tensor_size(conv->wide, &wide) != CUDNN_STATUS_SUCCESS ||
        mp__dnn.filter_size(conv->weights, &weights) != CUDNN_STATUS_SUCCESS ||
        mp__dnn.tensor_size(conv->narrow, &narrow) != CUDNN_STATUS_SUCCESS) {
        return MP_FAIL(UNSUPPORTED, "cuDNN does not say how large its tensors are");
    }
    wide = trial_part(wide);
    weights = trial_part(weights);
    narrow = trial_part(narrow);
    out->workspace_size = workspace_limit(&conv->shape);
    out->size = wide + weights + narrow + out->workspace_size;
    MP_TRY(device->base.ops->alloc(&device->base, out->size, &out->memory));
    out->wide = (void *)out->memory;
    out->weights = (void *)(out->memory + wide);
    out->narrow = (void *)(out->memory + wide + weights);
    out->workspace = (void *)(out->memory + wide + weights + narrow);
    return MP_OK;
}

static void trial_close(cuda_device *device, const trial *t) {
    device->base.ops->free(&device->base, t->memory, t->size);
}

/* With a trial the algorithms are timed, without one cuDNN is asked for its opinion. */
static cudnnStatus_t ask_forward(const cuda_conv *conv, cudnnHandle_t handle, const trial *t,
                                 candidate *out, int *count) {
    cudnnConvolutionFwdAlgoPerf_t results[ALGOS_MAX];
    const cudnnStatus_t status =
        t != NULL ? mp__dnn.forward_find(handle, conv->wide, t->wide, conv->weights, t->weights,
                                         conv->desc, conv->narrow, t->narrow, ALGOS_MAX, count,
                                         results, t->workspace, t->workspace_size)
                  : mp__dnn.forward_heuristic(handle, conv->wide, conv->weights, conv->desc,
                                              conv->narrow, ALGOS_MAX, count, results);
    for (int i = 0; status == CUDNN_STATUS_SUCCESS && i < *count; i++) {
        out[i] = CANDIDATE(results[i]);
    }
    return status;
}

static cudnnStatus_t ask_backward(const cuda_conv *conv, cudnnHandle_t handle, const trial *t,
                                  candidate *out, int *count) {
    cudnnConvolutionBwdDataAlgoPerf_t results[ALGOS_MAX];
    const cudnnStatus_t status =
        t != NULL ? mp__dnn.backward_find(handle, conv->weights, t->weights, conv->narrow,
                                          t->narrow, conv->desc, conv->wide, t->wide, ALGOS_MAX,
                                          count, results, t->workspace, t->workspace_size)
                  : mp__dnn.backward_heuristic(handle, conv->weights, conv->narrow, conv->desc,
                                               conv->wide, ALGOS_MAX, count, results);
    for (int i = 0; status == CUDNN_STATUS_SUCCESS && i < *count; i++) {
        out[i] = CANDIDATE(results[i]);
    }
    return status;
}

static cudnnStatus_t ask(const cuda_conv *conv, cudnnHandle_t handle, const trial *t,
                         candidate *out, int *count) {
    return conv->shape.transposed ? ask_backward(conv, handle, t, out, count)
                                  : ask_forward(conv, handle, t, out, count);
}

static cudnnStatus_t workspace_ask(const cuda_conv *conv, cudnnHandle_t handle, int algo,
                                   size_t *size) {
    return conv->shape.transposed
               ? mp__dnn.backward_workspace(handle, conv->weights, conv->narrow, conv->desc,
                                            conv->wide, (cudnnConvolutionBwdDataAlgo_t)algo, size)
               : mp__dnn.forward_workspace(handle, conv->wide, conv->weights, conv->desc,
                                           conv->narrow, (cudnnConvolutionFwdAlgo_t)algo, size);
}

/* A Fourier transform mixes the whole input into each output, so that what should be an exact zero
 * comes out as the rounding of the largest value. */
static bool is_transform(const cuda_conv *conv, int algo) {
    return conv->shape.transposed ? algo == (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT ||
                                        algo == (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING
                                  : algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_FFT ||
                                        algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING;
}

/* Settles on a candidate where it works within the limits. */
static bool candidate_take(cuda_conv *conv, cudnnHandle_t handle, const candidate *choice) {
    const bool strict = conv->shape.type == MP_F32 && !conv->shape.tf32;
    const bool tensor_math = choice->math == CUDNN_TENSOR_OP_MATH ||
                             choice->math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    size_t size = 0;
    if (!choice->works || is_transform(conv, choice->algo) || (strict && tensor_math) ||
        mp__dnn.conv_math(conv->desc, strict ? CUDNN_FMA_MATH : choice->math) !=
            CUDNN_STATUS_SUCCESS ||
        workspace_ask(conv, handle, choice->algo, &size) != CUDNN_STATUS_SUCCESS ||
        size > workspace_limit(&conv->shape)) {
        return false;
    }
    conv->algo = choice->algo;
    conv->dnn_workspace = size;
    return true;
}

static mp_status algorithm_choose(cuda_device *device, cuda_conv *conv, cudnnHandle_t handle) {
    const candidate usual = {.algo = conv->shape.transposed
                                         ? (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
                                         : (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                             .works = true,
                             .math = math_wanted(&conv->shape)};
    candidate found[ALGOS_MAX];
    int count = 0;
    if (conv->shape.search == 2 && candidate_take(conv, handle, &usual)) {
        return MP_OK;
    }
    trial t = {.memory = 0};
    /* A device too full for a trial still gets an answer. */
    const bool timed = conv->shape.search == 0 && trial_open(device, conv, &t) == MP_OK;
    const cudnnStatus_t status = ask(conv, handle, timed ? &t : NULL, found, &count);
    if (timed) {
        trial_close(device, &t);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        return mp__cuda_dnn_fail(status, "the choice of an algorithm");
    }
    for (int pass = 0; pass < 2; pass++) { /* algorithms that sum in a fixed order come first */
        for (int i = 0; i < count; i++) {
            if (found[i].repeatable == (pass == 0) && candidate_take(conv, handle, &found[i])) {
                return MP_OK;
            }
        }
    }
    return MP_FAIL(UNSUPPORTED, "cuDNN has no algorithm for it%s",
                   conv->shape.workspace_max ? " within 512 MiB of workspace"
                                             : " within 32 MiB of workspace");
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

static bool tail_needed(const mp_conv *shape) {
    return shape->bias || shape->relu;
}

/* cuDNN fuses a bias (with relu, or without for one algorithm) into forward convolutions. */
static bool fusible(const cuda_conv *conv) {
    return !conv->shape.transposed && conv->shape.bias &&
           (conv->shape.relu ||
            conv->algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

static mp_status conv_fill(cuda_device *device, cuda_conv *conv) {
    cudnnHandle_t handle = NULL;
    MP_TRY(frame_make(&conv->shape, &conv->frame));
    MP_TRY(descs_make(conv));
    MP_TRY(mp__cuda_dnn_take(device, &handle));
    const mp_status status = algorithm_choose(device, conv, handle);
    mp__cuda_dnn_give(device, handle);
    MP_TRY(status);
    atomic_store(&conv->fused, fusible(conv));
    if (conv->frame.windowed) {
        MP_TRY(window_measure(conv));
    }
    if (conv->frame.windowed || tail_needed(&conv->shape)) {
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

static cudnnStatus_t forward(const cuda_conv *conv, cudnnHandle_t handle, const places *at,
                             const void *one, const void *zero) {
    return mp__dnn.forward(handle, one, conv->wide, (const void *)at->wide, conv->weights,
                           (const void *)at->weights, conv->desc,
                           (cudnnConvolutionFwdAlgo_t)conv->algo, (void *)at->workspace,
                           conv->dnn_workspace, zero, conv->narrow, (void *)at->narrow);
}

static cudnnStatus_t backward(const cuda_conv *conv, cudnnHandle_t handle, const places *at,
                              const void *one, const void *zero) {
    return mp__dnn.backward(handle, one, conv->weights, (const void *)at->weights, conv->narrow,
                            (const void *)at->narrow, conv->desc,
                            (cudnnConvolutionBwdDataAlgo_t)conv->algo, (void *)at->workspace,
                            conv->dnn_workspace, zero, conv->wide, (void *)at->wide);
}

/* Queues cuDNN's part; `*tail` says whether bias and relu are still to come. */
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
    *tail = tail_needed(&conv->shape);
    const cudnnStatus_t result = conv->shape.transposed ? backward(conv, handle, at, one, zero)
                                                        : forward(conv, handle, at, one, zero);
    return result == CUDNN_STATUS_SUCCESS ? MP_OK : mp__cuda_dnn_fail(result, "the convolution");
}

static void sizes_set(long long out[MP_CONV_SPATIAL_MAX], const int64_t *sizes, int spatial) {
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        const int lead = MP_CONV_SPATIAL_MAX - spatial;
        out[i] = i < lead ? 1 : sizes[i - lead];
    }
}

static void frame_sizes_set(long long out[MP_CONV_SPATIAL_MAX], const frame *form) {
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
    const int64_t unit = line_unit(shape, channels);
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

/* The full result, or y itself, into y, with bias and relu. */
static mp_status tail_run(cuda_device *device, mp_stream *stream, const cuda_conv *conv,
                          const mp_addr *operands, mp_addr buffer) {
    const mp_conv *shape = &conv->shape;
    glue_window_args args = {.x = buffer,
                             .y = operands[MP_CONV_Y],
                             .bias = shape->bias ? operands[MP_CONV_BIAS] : 0,
                             .relu = shape->relu,
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

mp_status mp__cuda_conv_prepare(mp_device *self, const mp_conv *shape, mp_math **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    cuda_math *made = NULL;
    MP_TRY(shape_check(shape));
    MP_TRY(library_need());
    MP_TRY(mp__cuda_enter(device, &scope));
    mp_status status = mp__cuda_conv_graph_prepare(device, shape, &made);
    if (status == MP_UNSUPPORTED) {
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
