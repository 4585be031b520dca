/* cuda_conv_choose.c - which of cuDNN's algorithms a convolution is done by: the usual one, the one
 * that cuDNN expects to be fastest, or the fastest of all in a trial.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_choice.h"
#include "device/cuda/cuda_conv.h"

enum { ALGOS_MAX = 16, WORKSPACE_LIMIT = 32 << 20, WORKSPACE_GREEDY = 512 << 20 };

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

static cudnnStatus_t candidates_ask(const cuda_conv *conv, cudnnHandle_t handle, const trial *t,
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

/* In a fixed order of summing rather than fast. */
static const candidate *take_best(cuda_conv *conv, cudnnHandle_t handle, const candidate *found,
                                  int count) {
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            if (found[i].repeatable == (pass == 0) && candidate_take(conv, handle, &found[i])) {
                return &found[i];
            }
        }
    }
    return NULL;
}

enum { ALGO, MATH, ANSWER };

static bool take_known(cuda_conv *conv, cudnnHandle_t handle, const cuda_question *question) {
    int64_t answer[ANSWER];
    if (!mp__cuda_choice_recall(question, answer, ANSWER) || answer[ALGO] < 0 ||
        answer[ALGO] > INT8_MAX || answer[MATH] < CUDNN_DEFAULT_MATH ||
        answer[MATH] > CUDNN_FMA_MATH) {
        return false;
    }
    const candidate known = {
        .algo = (int)answer[ALGO], .works = true, .math = (cudnnMathType_t)answer[MATH]};
    return candidate_take(conv, handle, &known);
}

mp_status mp__cuda_conv_choose(cuda_device *device, cuda_conv *conv, cudnnHandle_t handle) {
    const candidate usual = {.algo = conv->shape.transposed
                                         ? (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
                                         : (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                             .works = true,
                             .math = conv_math_wanted(&conv->shape)};
    candidate found[ALGOS_MAX];
    int count = 0;
    int64_t numbers[CUDA_CONV_NUMBERS];
    const cuda_question question = {.device = &device->base,
                                    .kind = "algorithm of a convolution",
                                    .version = mp__dnn.version(),
                                    .numbers = numbers,
                                    .count = mp__cuda_conv_numbers(&conv->shape, numbers)};
    if ((conv->shape.search == 0 && take_known(conv, handle, &question)) ||
        (conv->shape.search == 2 && candidate_take(conv, handle, &usual))) {
        return MP_OK;
    }
    trial t = {.memory = 0};
    /* A device too full for a trial still gets an answer. */
    const bool timed = conv->shape.search == 0 && trial_open(device, conv, &t) == MP_OK;
    const cudnnStatus_t status = candidates_ask(conv, handle, timed ? &t : NULL, found, &count);
    if (timed) {
        trial_close(device, &t);
    }
    if (status != CUDNN_STATUS_SUCCESS) {
        return mp__cuda_dnn_fail(status, "the choice of an algorithm");
    }
    const candidate *best = take_best(conv, handle, found, count);
    if (best == NULL) {
        return MP_FAIL(UNSUPPORTED, "cuDNN has no algorithm for it%s",
                       conv->shape.workspace_max ? " within 512 MiB of workspace"
                                                 : " within 32 MiB of workspace");
    }
    if (timed) {
        const int64_t answer[ANSWER] = {[ALGO] = best->algo, [MATH] = (int64_t)best->math};
        mp__cuda_choice_keep(&question, answer, ANSWER);
    }
    return MP_OK;
}
