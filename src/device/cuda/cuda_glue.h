/* cuda_glue.h - the small kernels that join what cuBLASLt and cuDNN leave apart.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_GLUE_H
#define MP_DEVICE_CUDA_GLUE_H

#include "base/dtype.h"
#include "device/cuda/cuda_private.h"

/* These declarations are also kernel text (cuda_glue.c), so they use plain C types only. */

/* rows: c[b, i, j] = beta * d[b, i, j] + bias[j]; d or bias may be 0. */
#define GLUE_ROWS_ARGS              \
    typedef struct glue_rows_args { \
        unsigned long long c;       \
        unsigned long long d;       \
        unsigned long long bias;    \
        long long batch;            \
        long long m;                \
        long long n;                \
        long long ldc;              \
        long long stride;           \
        double beta;                \
    } glue_rows_args;
GLUE_ROWS_ARGS

/* window: y[p, o] = x[p, o + offset] for each plane p, 0 outside of x; then + bias[p % channels].
 * Pads, crops, and (in place) adds bias. With `channels_last` a plane is a whole image, whose lines
 * are pixels times channels, and the bias is of o % channels. */
#define GLUE_WINDOW_ARGS              \
    typedef struct glue_window_args { \
        unsigned long long x;         \
        unsigned long long y;         \
        unsigned long long bias;      \
        long long planes;             \
        long long channels;           \
        long long x_size[3];          \
        long long y_size[3];          \
        long long offset[3];          \
        int in_place;                 \
        int channels_last;            \
    } glue_window_args;
GLUE_WINDOW_ARGS

typedef enum glue_kind { GLUE_ROWS, GLUE_WINDOW, GLUE_KINDS } glue_kind;

/* Gives: `*out`, until mp__cuda_kernel_unload. Types: the four floats. */
MP_MUST_CHECK mp_status mp__cuda_glue_load(cuda_device *device, glue_kind kind, mp_dtype type,
                                           mp_kernel **out);

MP_MUST_CHECK mp_status mp__cuda_glue_rows(cuda_device *device, mp_stream *stream,
                                           const mp_kernel *kernel, const glue_rows_args *args);
MP_MUST_CHECK mp_status mp__cuda_glue_window(cuda_device *device, mp_stream *stream,
                                             const mp_kernel *kernel, const glue_window_args *args);

#endif
