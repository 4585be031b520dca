/* det_args.h - arguments of det.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DET_ARGS_H
#define MP_KERNEL_DET_ARGS_H

#include "kernel/core/types.h"

typedef struct mp_det_args {
    const void *x;
    void *out;
    double *work; /* as many elements as x */
    int64_t matrices, side;
} mp_det_args;

#endif
