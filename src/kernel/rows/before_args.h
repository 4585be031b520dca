/* before_args.h - what is done to a row before it is multiplied, by each block that multiplies it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BEFORE_ARGS_H
#define MP_KERNEL_BEFORE_ARGS_H

#include "kernel/core/types.h"

/* K_BEFORE of a kernel. For the preprocessor, and so no enum. */
#define K_BEFORE_NOTHING 0
#define K_BEFORE_NORM    1 /* x + skip, by its root mean square, times scale */
#define K_BEFORE_GATE    2 /* an activation of the left half of x times its right half */

/* Packs of 16 bytes that a lane keeps meanwhile. */
enum { K_BEFORE_PACKS = 3 };

typedef struct k_before {
    const void *x, *skip, *scale; /* skip may be NULL; the scale is a constant */
    void *sum;                    /* gets x + skip; may be NULL */
    int64_t columns;              /* that are made: whole packs of 16 aligned bytes */
    float epsilon;
    float alpha;  /* of the gate */
    int32_t gate; /* K_GATE_... */
    int32_t unused;
} k_before;

#endif
