/* pointwise_args.h - arguments of the element-wise kernels. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_POINTWISE_ARGS_H
#define MP_KERNEL_POINTWISE_ARGS_H

#include "kernel/index_args.h"

typedef struct mp_pointwise1_args {
    const void *x;
    void *out;
    int64_t count;
    float a, b; /* attributes of the operator */
} mp_pointwise1_args;

/* Which sides of a binary function are one element. */
enum {
    P_SAME, /* neither: x, y and the result have one shape */
    P_SCALAR_X,
    P_SCALAR_Y,
    P_BROADCAST, /* repeated otherwise: the broadcast kernel */
};

typedef struct mp_pointwise2_args {
    const void *x, *y;
    void *out;
    int64_t count;
    float a, b;
    int32_t form;
    int32_t unused;
} mp_pointwise2_args;

typedef struct mp_broadcast2_args {
    const void *x, *y;
    void *out;
    int64_t count;
    float a, b;
    k_layout layout; /* view 0 is x, view 1 is y */
} mp_broadcast2_args;

typedef struct mp_clip_args {
    const void *x, *low, *high; /* low and high: one element each, or NULL */
    void *out;
    int64_t count;
} mp_clip_args;

typedef struct mp_where_args {
    const void *condition, *x, *y;
    void *out;
    int64_t count;
    int32_t broadcast; /* `layout` tells: views 0 condition, 1 x, 2 y */
    int32_t unused;
    k_layout layout;
} mp_where_args;

typedef struct mp_range_args {
    void *out;
    int64_t count;
    int64_t start, delta;            /* of integers */
    double start_float, delta_float; /* of floats */
} mp_range_args;

#endif
