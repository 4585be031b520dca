/* math.h - library math: matrix products and convolutions, as descriptions.
 *
 * A description is prepared once for a shape (algorithm and workspace chosen) and run many times
 * with addresses. cuBLASLt and cuDNN do it on a GPU, OpenBLAS and our own loops on the host. A
 * prepared object may be run from any thread, on any stream of its device, concurrently.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_MATH_H
#define MP_DEVICE_MATH_H

#include "base/dtype.h"
#include "device/device.h"

/* How a device that has several algorithms for a product chooses. The emulated one has one. */
typedef enum mp_tune {
    MP_TUNE_OFF,     /* as the library thinks best */
    MP_TUNE_USE,     /* what was measured in this process before, where it was */
    MP_TUNE_MEASURE, /* the same, and measured now where it was not: that runs products and waits */
} mp_tune;

/* What is done to each element of a result before it is stored. */
typedef enum mp_activation {
    MP_ACTIVATION_NONE,
    MP_ACTIVATION_RELU,
    MP_ACTIVATION_LEAKY_RELU, /* alpha */
    MP_ACTIVATION_CLIP,       /* alpha to beta */
    MP_ACTIVATION_SIGMOID,
    MP_ACTIVATION_TANH,
    MP_ACTIVATION_HARD_SIGMOID, /* alpha x + beta, between 0 and 1 */
    MP_ACTIVATION_HARD_SWISH,
    MP_ACTIVATION_SILU,      /* x sigmoid(x) */
    MP_ACTIVATION_GELU,      /* by erf */
    MP_ACTIVATION_GELU_TANH, /* as tanh approximates it */
    MP_ACTIVATION_SWISH,     /* x sigmoid(alpha x) */
    MP_ACTIVATION_OTHER,     /* one that no device has */
} mp_activation;

/* C[m,n] = activation(alpha * op(A)[m,k] * op(B)[k,n] + beta * D[m,n] (+ bias[n])), row-major,
 * `batch` times. A device that has no such activation fails UNSUPPORTED when it is prepared. Types:
 * MP_F32, MP_F64, MP_F16, MP_BF16; narrow types accumulate in float. k may be 0. m, n and batch are
 * at least 1. */
struct mp_gemm {
    mp_dtype type;
    bool trans_a, trans_b; /* A is stored [k,m], B is stored [n,k] */
    bool tf32;             /* may round float inputs to TF32 on devices that have it */
    bool bias;             /* operand 4: n values, added to each row */
    mp_activation activation;
    float activation_alpha, activation_beta; /* as of a convolution */
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements between rows as stored; ldc serves C and D */
    int64_t batch;
    int64_t stride_a, stride_b, stride_c; /* elements between batches; 0 repeats A or B */
    float alpha, beta;
    int32_t align; /* bytes that all operand addresses are known to be multiples of: 1 to 256;
                    * they are always multiples of an element's size */
    mp_tune tune;
    int64_t tune_ms; /* measuring takes no other candidate after that long; 0: all are measured */
};

/* Operands of math_run for a gemm: D may equal C; D is unused when beta is 0. */
enum { MP_GEMM_A, MP_GEMM_B, MP_GEMM_C, MP_GEMM_D, MP_GEMM_BIAS, MP_GEMM_OPERANDS };

enum { MP_CONV_SPATIAL_MAX = 3 };

/* y = activation(convolution of x [batch, in_channels, in...] with w, + bias, + residual), or with
 * the residual added behind the activation.
 * Forward: w is [out_channels, in_channels / groups, kernel...].
 * Transposed: w is [in_channels, out_channels / groups, kernel...], the gradient of the forward
 * form with respect to its input. With `channels_last` x, y and w are all stored with their second
 * dimension last: [batch, in..., in_channels], [out_channels, kernel..., in_channels / groups]; a
 * device that cannot do such a convolution fails UNSUPPORTED when it is prepared. Padding may
 * differ at the two ends and may be larger than the kernel; output sizes are given, not derived.
 * With channels last the pixels of x and y may lie apart, `*_pitch` elements from one to the next:
 * kernels of ours know of that, devices fail UNSUPPORTED, as libraries would copy such images.
 * Types as for gemm. */
struct mp_conv {
    mp_dtype type;
    bool transposed;
    bool channels_last;
    bool tf32;
    bool bias;            /* operand 3: out_channels values */
    bool residual;        /* operand 4: as y */
    bool residual_behind; /* the activation, of which there is one then */
    mp_activation activation;
    float alpha, beta; /* of the activation */
    int32_t spatial;   /* 1 to 3 */
    int32_t search; /* 0 exhaustive (time the algorithms), 1 heuristic, 2 the default algorithm */
    bool workspace_max; /* a workspace of up to 512 MiB is welcome; otherwise 32 MiB at most */
    int32_t align;      /* bytes that all operand addresses are known to be multiples of */
    int64_t batch, in_channels, out_channels, groups;
    int64_t x_pitch, y_pitch; /* 0: one lies behind the other */
    int64_t in[MP_CONV_SPATIAL_MAX], out[MP_CONV_SPATIAL_MAX], kernel[MP_CONV_SPATIAL_MAX];
    int64_t stride[MP_CONV_SPATIAL_MAX], dilation[MP_CONV_SPATIAL_MAX];
    int64_t pad_begin[MP_CONV_SPATIAL_MAX], pad_end[MP_CONV_SPATIAL_MAX];
};

enum { MP_CONV_X, MP_CONV_W, MP_CONV_Y, MP_CONV_BIAS, MP_CONV_RESIDUAL, MP_CONV_OPERANDS };

/* Whether it has more than a bias behind it. */
static inline bool mp_conv_has_epilogue(const mp_conv *conv) {
    return conv->residual || conv->activation != MP_ACTIVATION_NONE;
}

static inline bool mp_conv_is_apart(const mp_conv *conv) {
    return conv->x_pitch > 0 || conv->y_pitch > 0;
}

enum { MP_MATH_OPERANDS_MAX = 5 };

#endif
