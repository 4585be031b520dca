/* talking_args.h - see talking_heads.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_TALKING_ARGS_H
#define MP_KERNEL_TALKING_ARGS_H

#include "kernel/core/types.h"

enum { K_TALKING_PACK = 8 /* heads that a lane mixes at once */, K_TALKING_LANES = 256 };

/* A matrix by which heads are mixed, and what is added. */
typedef struct k_talking_mix {
    const void *weight, *bias; /* bias: NULL for none */
    int32_t from, to;          /* heads */
    int32_t by_from, by_to;    /* elements of the weight from one to the next */
} k_talking_mix;

/* x is [batch, heads, rows, columns]. */
typedef struct mp_talking_args {
    const void *x;
    void *out;
    k_talking_mix before, after; /* of the softmax over columns */
    int64_t rows;
    int32_t units, columns; /* units: batch times rows */
} mp_talking_args;

#endif
