/* cosine_window_args.h - arguments of cosine_window.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COSINE_WINDOW_ARGS_H
#define MP_KERNEL_COSINE_WINDOW_ARGS_H

#include "kernel/core/types.h"

/* out[i] = a0 - a1 cos(2 pi i / period) + a2 cos(4 pi i / period) */
typedef struct mp_cosine_window_args {
    void *out;
    int64_t count, period; /* period is at least 1 */
    double a0, a1, a2;
    int32_t type; /* of out, as ONNX numbers them */
    int32_t unused;
} mp_cosine_window_args;

#endif
