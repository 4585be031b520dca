/* mel_args.h - arguments of mel_weights.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MEL_ARGS_H
#define MP_KERNEL_MEL_ARGS_H

#include "kernel/core/types.h"

typedef struct mp_mel_args {
    const int64_t *edge; /* bands + 2 bins, ascending: a band lies between those beside its own */
    void *out;           /* [bins][bands] */
    int64_t bins, bands;
    int32_t type; /* of out, as ONNX numbers them */
    int32_t unused;
} mp_mel_args;

#endif
