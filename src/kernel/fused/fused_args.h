/* fused_args.h - arguments of every fused kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FUSED_ARGS_H
#define MP_KERNEL_FUSED_ARGS_H

#include "kernel/core/index_args.h"

enum { K_FUSED_IN = 12, K_FUSED_OUT = 4, K_FUSED_NUMBERS = 16 };

/* Lanes that share a row at most. */
enum { K_FUSED_ROW_LANES = 512 };

typedef struct mp_fused_args {
    const void *in[K_FUSED_IN];
    void *out[K_FUSED_OUT];
    const void *program;            /* what the emulated device runs; not read on a GPU */
    const void *stand_in;           /* what stand_in.cu reads: a k_stand_in_code and its terms */
    float numbers[K_FUSED_NUMBERS]; /* scalars of the model, the same for all elements */
    k_walk walk;                    /* views: the inputs that are repeated, in their order */
    int64_t rows;                   /* of an expression with reductions: `count` is rows times */
    int32_t columns;                /* columns, */
    int32_t width;                  /* and so many lanes share a row */
} mp_fused_args;

#endif
