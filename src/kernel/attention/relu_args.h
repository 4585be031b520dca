/* relu_args.h - see relu_attention.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RELU_ARGS_H
#define MP_KERNEL_RELU_ARGS_H

#include "kernel/core/types.h"

enum { K_RELU_LANES = 512, K_RELU_QUAD = 4 };

/* Images [batch][pixels][channels], whose channels are heads of a query, a key and a value each;
 * out [batch][pixels][heads * size]. */
typedef struct mp_relu_attention_args {
    const void *x[2]; /* the second one has the heads that the first has not; or NULL */
    void *out;
    int32_t pixels;
    int32_t heads, first; /* of both images, and of the first one */
    int32_t units;        /* batch times heads */
    int32_t groups;       /* parts that pixels are summed in */
    float epsilon;
} mp_relu_attention_args;

#endif
