/* shape.h - shapes of tensors and the arithmetic that operators share. Every product of sizes is
 * checked: a model file may ask for anything. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SHAPE_H
#define MP_OP_SHAPE_H

#include "base/dtype.h"
#include "base/status.h"
#include "kernel/index_args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MP_RANK_MAX = K_RANK_MAX };

typedef struct mp_shape {
    int32_t rank; /* 0 is a scalar */
    int64_t dim[MP_RANK_MAX];
} mp_shape;

/* Elements of a shape that has passed mp_shape_bytes (no overflow). A scalar has one. */
int64_t mp_shape_count(const mp_shape *shape);

/* Product of dimensions [from, to). */
int64_t mp_shape_span(const mp_shape *shape, int from, int to);

bool mp_shape_equal(const mp_shape *a, const mp_shape *b);

/* Bytes of a tensor. Fails: INVALID_ARGUMENT for a negative dimension or more than 2^62 bytes; of
 * an empty tensor the dimensions that are not 0 count. */
mp_status mp_shape_bytes(const mp_shape *shape, mp_dtype dtype, size_t *out);

/* "2x3x4", "scalar": for messages; `text` holds at least 192 bytes. Returns `text`. */
char *mp_shape_text(const mp_shape *shape, char *text);

/* A axis in [-rank, rank) made non-negative. Fails: INVALID_ARGUMENT, naming `what`. */
mp_status mp_shape_axis(int64_t axis, int rank, const char *what, int *out);

/* The shape that NumPy's rules give for a and b. Fails: INVALID_ARGUMENT. */
mp_status mp_shape_broadcast(const mp_shape *a, const mp_shape *b, mp_shape *out);

/* Row-major strides in elements. */
void mp_shape_strides(const mp_shape *shape, int64_t stride[MP_RANK_MAX]);

/* Strides with which a tensor of shape `in` is walked along the dimensions of `out`, to which it
 * broadcasts: 0 where it is repeated. */
void mp_shape_broadcast_strides(const mp_shape *in, const mp_shape *out,
                                int64_t stride[MP_RANK_MAX]);

/* An iteration space over `shape` with `views` sets of strides: dimensions of one are dropped and
 * neighbours that every view walks as one are merged. The result has rank >= 1. */
void mp_layout_make(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                    k_layout *out);

/* Constants for division by `divisor` (1 to 2^31 - 1) of numbers below 2^31. */
k_divider mp_divider(uint32_t divisor);

#endif
