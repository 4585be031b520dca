/* shape.c - shapes, broadcasting, iteration spaces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/shape.h"

#include <stdio.h>
#include <string.h>

int64_t mp_shape_count(const mp_shape *shape) {
    return mp_shape_span(shape, 0, shape->rank);
}

int64_t mp_shape_span(const mp_shape *shape, int from, int to) {
    uint64_t count = 1; /* of an empty tensor, a part of the product may wrap; the whole is 0 */
    for (int d = from; d < to; d++) {
        count *= (uint64_t)shape->dim[d];
    }
    return (int64_t)count;
}

mp_shape mp_shape_of_rows(const mp_shape *shape, int dims, int dropped) {
    mp_shape rows = *shape;
    for (int d = shape->rank - dims; d < shape->rank; d++) {
        rows.dim[d] = 1;
    }
    rows.rank -= dropped;
    return rows;
}

bool mp_shape_equal(const mp_shape *a, const mp_shape *b) {
    if (a->rank != b->rank) {
        return false;
    }
    for (int d = 0; d < a->rank; d++) {
        if (a->dim[d] != b->dim[d]) {
            return false;
        }
    }
    return true;
}

mp_status mp_shape_bytes(const mp_shape *shape, mp_dtype dtype, size_t *out) {
    char text[MP_SHAPE_TEXT];
    const int64_t bits = (int64_t)mp_dtype_bits(dtype);
    const int64_t packed = bits > 0 && bits < 8 ? 8 / bits : 1; /* elements of a byte */
    int64_t bytes = packed > 1 ? 1 : bits / 8;
    bool empty = false;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] < 0) {
            return MP_FAIL(INVALID_ARGUMENT, "shape %s has a negative dimension",
                           mp_shape_text(shape, text));
        }
        empty = empty || shape->dim[d] == 0;
    }
    /* Without the zeros, so that products over a part of an empty tensor's dimensions hold too. */
    for (int d = 0; d < shape->rank; d++) {
        const int64_t dim = shape->dim[d] != 0 ? shape->dim[d] : 1;
        if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > INT64_MAX / 2) {
            return MP_FAIL(INVALID_ARGUMENT, "a %s tensor of shape %s is too large to address",
                           mp_dtype_name(dtype), mp_shape_text(shape, text));
        }
    }
    *out = empty ? 0 : (size_t)MP_CEIL_DIV(bytes, packed);
    return MP_OK;
}

char *mp_shape_text(const mp_shape *shape, char *text) {
    if (shape->rank == 0) {
        memcpy(text, "scalar", sizeof "scalar");
        return text;
    }
    enum { LONGEST = 21, REST = 5 }; /* "x-9223372036854775808", "x..." */
    char *at = text;
    for (int d = 0; d < shape->rank; d++) {
        if (at + LONGEST + REST > text + MP_SHAPE_TEXT) {
            memcpy(at, "x...", sizeof "x...");
            break;
        }
        at += sprintf(at, d == 0 ? "%lld" : "x%lld", (long long)shape->dim[d]);
    }
    return text;
}

mp_status mp_shape_axis(int64_t axis, int rank, const char *what, int *out) {
    if (axis < -rank || axis >= rank) {
        return MP_FAIL(INVALID_ARGUMENT, "%s %lld is outside [%d, %d) for a tensor of rank %d",
                       what, (long long)axis, -rank, rank, rank);
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return MP_OK;
}

mp_status mp_rank_accept(const mp_shape *shape, int most, const char *what) {
    return shape->rank <= most ? MP_OK
                               : MP_FAIL(UNSUPPORTED,
                                         "%s has rank %d; ranks up to %d are supported here, where "
                                         "dimensions cannot be merged",
                                         what, shape->rank, most);
}

mp_status mp_shape_broadcast(const mp_shape *a, const mp_shape *b, mp_shape *out) {
    const mp_shape *longer = a->rank >= b->rank ? a : b;
    const mp_shape *shorter = a->rank >= b->rank ? b : a;
    mp_shape result = *longer;
    const int skip = longer->rank - shorter->rank;
    for (int d = 0; d < shorter->rank; d++) {
        const int64_t x = longer->dim[skip + d];
        const int64_t y = shorter->dim[d];
        if (x != y && x != 1 && y != 1) {
            char left[MP_SHAPE_TEXT];
            char right[MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT, "shapes %s and %s do not broadcast",
                           mp_shape_text(a, left), mp_shape_text(b, right));
        }
        result.dim[skip + d] = x == 1 ? y : x;
    }
    *out = result;
    return MP_OK;
}

void mp_shape_strides(const mp_shape *shape, int64_t stride[MP_RANK_MAX]) {
    int64_t step = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape->dim[d];
    }
}

void mp_shape_broadcast_strides(const mp_shape *in, const mp_shape *out,
                                int64_t stride[MP_RANK_MAX]) {
    int64_t own[MP_RANK_MAX] = {0};
    mp_shape_strides(in, own);
    const int skip = out->rank - in->rank;
    for (int d = 0; d < out->rank; d++) {
        const bool repeated = d < skip || in->dim[d - skip] != out->dim[d];
        stride[d] = repeated ? 0 : own[d - skip];
    }
}

k_divider mp_divider(uint32_t divisor) {
    uint32_t shift = 0;
    while (shift < 31 && (1u << shift) < divisor) {
        shift++;
    }
    const uint64_t power = (uint64_t)1 << 32;
    const uint64_t excess = ((uint64_t)1 << shift) - divisor;
    return (k_divider){.multiplier = (uint32_t)(power * excess / divisor + 1), .shift = shift};
}

/* Whether every view steps from dimension `inner` into `outer` as if they were one. */
static bool merges(const mp_space *space, int64_t inner_dim, int views,
                   int64_t (*stride)[MP_RANK_MAX], int inner) {
    const int last = space->rank - 1;
    for (int v = 0; v < views; v++) {
        if (space->stride[v][last] != stride[v][inner] * inner_dim) {
            return false;
        }
    }
    return true;
}

void mp_space_make(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                   mp_space *out) {
    mp_space space = {.rank = 0};
    for (int d = 0; d < shape->rank; d++) {
        const int64_t dim = shape->dim[d];
        if (dim == 1) {
            continue;
        }
        if (space.rank > 0 && merges(&space, dim, views, stride, d)) {
            space.dim[space.rank - 1] *= dim;
        } else {
            space.dim[space.rank++] = dim;
        }
        for (int v = 0; v < views; v++) {
            space.stride[v][space.rank - 1] = stride[v][d];
        }
    }
    if (space.rank == 0) {
        space.rank = 1;
        space.dim[0] = 1;
    }
    *out = space;
}

mp_status mp_space_layout(const mp_space *space, k_layout *out) {
    int64_t count = 1;
    if (space->rank > K_RANK_MAX) {
        return MP_FAIL(
            UNSUPPORTED,
            "%d dimensions are left when those that behave alike are merged, and kernels "
            "walk %d; reshape the tensor to fewer dimensions",
            space->rank, K_RANK_MAX);
    }
    *out = (k_layout){.rank = space->rank};
    for (int d = 0; d < space->rank; d++) {
        count *= space->dim[d];
        out->dim[d] = space->dim[d];
        for (int v = 0; v < K_VIEWS; v++) {
            out->stride[v][d] = space->stride[v][d];
        }
    }
    out->wide = count > INT32_MAX;
    for (int d = 0; d < space->rank && !out->wide && count > 0; d++) {
        out->divider[d] = mp_divider((uint32_t)space->dim[d]);
    }
    return MP_OK;
}

mp_status mp_layout_make(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                         k_layout *out) {
    mp_space space;
    mp_space_make(shape, stride, views, &space);
    return mp_space_layout(&space, out);
}

mp_status mp_parts_check(int64_t parts, const mp_shape *shape) {
    char text[MP_SHAPE_TEXT];
    return parts <= MP_PARTS_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED,
                         "a tensor of shape %s would be walked in %lld parts, and %d are the most; "
                         "reshape it to fewer dimensions",
                         mp_shape_text(shape, text), (long long)parts, MP_PARTS_MAX);
}
