/* pointwise_args.h - arguments of the element-wise kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POINTWISE_ARGS_H
#define MP_KERNEL_POINTWISE_ARGS_H

#include "kernel/core/walk_args.h"

typedef struct mp_pointwise1_args {
    const void *x;
    void *out;
    int64_t count;
    float a, b; /* attributes of the operator */
} mp_pointwise1_args;

typedef struct mp_pointwise2_args {
    const void *x, *y;
    void *out;
    float a, b;
    k_walk walk; /* view 0 is x, view 1 is y */
} mp_pointwise2_args;

/* The exponent y has a type of its own. */
typedef struct mp_pow_args {
    const void *x, *y;
    void *out;
    k_walk walk; /* view 0 is x, view 1 is y */
} mp_pow_args;

typedef struct mp_clip_args {
    const void *x, *low, *high; /* low and high: one element each, or NULL */
    void *out;
    int64_t count;
} mp_clip_args;

typedef struct mp_where_args {
    const void *condition, *x, *y;
    void *out;
    k_walk walk; /* views: 0 condition, 1 x, 2 y */
} mp_where_args;

typedef struct mp_range_args {
    void *out;
    int64_t count;
    int64_t start, delta;            /* of integers */
    double start_float, delta_float; /* of floats */
} mp_range_args;

#endif
