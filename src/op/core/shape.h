/* shape.h - shapes of tensors and the arithmetic that operators share. Every product of sizes is
 * checked: a model file may ask for anything.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SHAPE_H
#define MP_OP_SHAPE_H

#include "base/dtype.h"
#include "base/status.h"
#include "kernel/core/index_args.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of tensors. Kernels walk K_RANK_MAX dimensions: neighbours that behave alike are merged before,
 * and what is left beyond that is walked in parts, one launch each. */
enum { MP_RANK_MAX = 16 };
static_assert(MP_RANK_MAX <= 2 * K_RANK_MAX, "kept and reduced dimensions alternate at worst");

typedef struct mp_shape {
    int32_t rank; /* 0 is a scalar */
    int64_t dim[MP_RANK_MAX];
} mp_shape;

/* Elements of a shape that has passed mp_shape_bytes (no overflow). A scalar has one. */
int64_t mp_shape_count(const mp_shape *shape);

/* Product of dimensions [from, to). */
int64_t mp_shape_span(const mp_shape *shape, int from, int to);

/* With an extent of 1 for the last `dims` dimensions, of which the last `dropped` are left out. */
mp_shape mp_shape_of_rows(const mp_shape *shape, int dims, int dropped);

bool mp_shape_equal(const mp_shape *a, const mp_shape *b);

/* Bytes of a tensor. Fails: INVALID_ARGUMENT for a negative dimension or more than 2^62 bytes; of
 * an empty tensor the dimensions that are not 0 count. */
mp_status mp_shape_bytes(const mp_shape *shape, mp_dtype dtype, size_t *out);

enum { MP_SHAPE_TEXT = 192 }; /* bytes of the text of a shape */

/* "2x3x4", "scalar": for messages; `text` holds MP_SHAPE_TEXT bytes, and ends in "x..." where they
 * do not suffice. Returns `text`. */
char *mp_shape_text(const mp_shape *shape, char *text);

/* A axis in [-rank, rank) made non-negative. Fails: INVALID_ARGUMENT, naming `what`. */
mp_status mp_shape_axis(int64_t axis, int rank, const char *what, int *out);

/* Whether a tensor whose dimensions cannot be merged has `most` of them or fewer; a rank that is
 * not known (negative, while a session is made) passes. Fails: UNSUPPORTED, naming `what`. */
mp_status mp_rank_accept(const mp_shape *shape, int most, const char *what);

/* The shape that NumPy's rules give for a and b. Fails: INVALID_ARGUMENT. */
mp_status mp_shape_broadcast(const mp_shape *a, const mp_shape *b, mp_shape *out);

/* Row-major strides in elements. */
void mp_shape_strides(const mp_shape *shape, int64_t stride[MP_RANK_MAX]);

/* Strides with which a tensor of shape `in` is walked along the dimensions of `out`, to which it
 * broadcasts: 0 where it is repeated. */
void mp_shape_broadcast_strides(const mp_shape *in, const mp_shape *out,
                                int64_t stride[MP_RANK_MAX]);

/* An iteration space: dimensions and, for each view, the steps along them. */
typedef struct mp_space {
    int rank; /* at least 1 */
    int64_t dim[MP_RANK_MAX];
    int64_t stride[K_VIEWS][MP_RANK_MAX]; /* in elements; 0 repeats, negative walks back */
} mp_space;

/* The space over `shape` with `views` sets of strides: dimensions of one are dropped and neighbours
 * that every view walks as one are merged. */
void mp_space_make(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views, mp_space *out);

/* The space as a kernel walks it. Fails: UNSUPPORTED where it has more than K_RANK_MAX dimensions.
 */
mp_status mp_space_layout(const mp_space *space, k_layout *out);

/* Both in one. */
mp_status mp_layout_make(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                         k_layout *out);

/* Parts of one step at most that a space of too many dimensions is walked in. */
enum { MP_PARTS_MAX = 1 << 16 };
mp_status mp_parts_check(int64_t parts, const mp_shape *shape);

/* Constants for division by `divisor` (1 to 2^31 - 1) of numbers below 2^31. */
k_divider mp_divider(uint32_t divisor);

#endif
