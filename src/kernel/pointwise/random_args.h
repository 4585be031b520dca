/* random_args.h - arguments of the kernels that draw random numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RANDOM_ARGS_H
#define MP_KERNEL_RANDOM_ARGS_H

#include "kernel/core/types.h"

/* a + b * a number of [0, 1), or of mean 0 and deviation 1. */
typedef struct mp_random_args {
    void *out;
    uint64_t seed, run;
    int64_t count;
    float a, b;
    int32_t normal;
    int32_t unused;
} mp_random_args;

/* out = x / (1 - ratio) where a number of [0, 1) is not below ratio, otherwise 0. */
typedef struct mp_dropout_args {
    const void *x;
    void *out;
    void *mask; /* bool, or of the type of x; may be NULL */
    uint64_t seed, run;
    int64_t count;
    float ratio;
    int32_t typed_mask;
} mp_dropout_args;

/* Each row of x is the logarithm of how likely each class is, apart from a factor. */
typedef struct mp_multinomial_args {
    const void *x;
    void *sums; /* 8 bytes for each element of x: how likely it or one before it is */
    void *out;
    uint64_t seed, run;
    int64_t rows, classes, samples;
    int32_t wide; /* out is of int64, not int32 */
    int32_t unused;
} mp_multinomial_args;

#endif
