/* index_walk.c - walks by indices: their layouts, and what shapes must fulfil.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/index_walk.h"

#include "op/core/op.h"
#include "op/move/strided_copy.h"

/* Nothing may be named in an empty dimension: there is no element to draw an index to. */
static mp_status check_dims(const k_indexed *walk) {
    for (int d = 0; d < walk->depth; d++) {
        if (walk->count > 0 && walk->dim[d] == 0) {
            return MP_FAIL(INVALID_ARGUMENT, "part %d of an index names an empty axis of the data",
                           d);
        }
    }
    return MP_OK;
}

mp_status mp_indexed_elements(const mp_shape *data, const mp_tensor *indices, int axis,
                              k_indexed *out) {
    const mp_shape *walked = &indices->shape;
    int64_t stride[2][MP_RANK_MAX] = {{0}};
    bool fits = walked->rank == data->rank;
    for (int d = 0; fits && d < data->rank; d++) {
        fits = d == axis || walked->dim[d] <= data->dim[d];
    }
    if (!fits) {
        char a[MP_SHAPE_TEXT];
        char b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "indices of shape %s do not fit into data of shape %s beside axis %d",
                       mp_shape_text(walked, b), mp_shape_text(data, a), axis);
    }
    mp_shape_strides(data, stride[0]);
    mp_shape_strides(walked, stride[1]);
    *out = (k_indexed){.count = mp_shape_count(walked),
                       .depth = 1,
                       .is_narrow = indices->type == MP_I32,
                       .dim = {data->dim[axis]},
                       .stride = {stride[0][axis]}};
    if (out->count == 0) {
        return MP_OK;
    }
    stride[0][axis] = 0;
    MP_TRY(mp_layout_make(walked, stride, 2, &out->layout));
    return check_dims(out);
}

/* Dimensions that are not known are taken to be unlike, so that they do not merge. */
mp_status mp_indexed_elements_accept(const mp_planner *p) {
    enum { UNLIKE = 3, LIKE = 2 };
    const mp_shape *data = &p->in[0].shape, *walked = &p->in[1].shape;
    mp_shape x = {.rank = data->rank}, steps = {.rank = data->rank};
    int64_t stride[2][MP_RANK_MAX] = {{0}};
    k_layout layout;
    int axis = 0;
    if (data->rank <= K_RANK_MAX || walked->rank != data->rank) {
        return MP_OK;
    }
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), data->rank, "axis", &axis));
    for (int d = 0; d < data->rank; d++) {
        const bool like = d == axis || (data->dim[d] == walked->dim[d] && data->dim[d] >= 0);
        steps.dim[d] = walked->dim[d] == 1 ? 1 : LIKE;
        x.dim[d] = like ? steps.dim[d] : UNLIKE;
    }
    mp_shape_strides(&x, stride[0]);
    mp_shape_strides(&steps, stride[1]);
    stride[0][axis] = 0;
    return mp_layout_make(&steps, stride, 2, &layout);
}

/* Every part of an index names a dimension of its own. */
mp_status mp_indexed_slices_accept(const mp_planner *p) {
    const mp_shape *rows = &p->in[1].shape;
    const int64_t depth = rows->rank > 0 ? rows->dim[rows->rank - 1] : 0;
    return depth <= K_RANK_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "an index of %lld parts; up to %d are supported",
                         (long long)depth, K_RANK_MAX);
}

static mp_status check_slices(const mp_shape *data, const mp_shape *indices, int64_t batch_dims) {
    bool fits = indices->rank > 0 && batch_dims >= 0 && batch_dims < indices->rank &&
                batch_dims < data->rank;
    for (int d = 0; fits && d < batch_dims; d++) {
        fits = data->dim[d] == indices->dim[d];
    }
    fits = fits && indices->dim[indices->rank - 1] >= 1 &&
           indices->dim[indices->rank - 1] <= data->rank - batch_dims;
    if (!fits) {
        char a[MP_SHAPE_TEXT];
        char b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "data of shape %s, indices of shape %s and batch_dims %lld do not fit",
                       mp_shape_text(data, a), mp_shape_text(indices, b), (long long)batch_dims);
    }
    return MP_OK;
}

/* The leading dimensions of the indices, then those of `data` that an index does not name. */
static mp_status slices_of(const mp_shape *data, const mp_shape *indices, int named,
                           mp_shape *out) {
    *out = *indices;
    out->rank = indices->rank - 1;
    for (int d = named; d < data->rank; d++) {
        if (out->rank == MP_RANK_MAX) {
            return MP_FAIL(UNSUPPORTED, "the slices would have a rank above %d", MP_RANK_MAX);
        }
        out->dim[out->rank++] = data->dim[d];
    }
    return MP_OK;
}

mp_status mp_indexed_slices(const mp_planner *p, const mp_tensor *data, const mp_tensor *indices,
                            int64_t batch_dims, bool whole_units, mp_sliced *out) {
    const mp_shape *x = &data->shape;
    const mp_shape *rows = &indices->shape;
    MP_TRY(check_slices(x, rows, batch_dims));
    MP_TRY(mp_indexed_slices_accept(p));
    const int batched = (int)batch_dims;
    const int depth = (int)rows->dim[rows->rank - 1];
    *out = (mp_sliced){.unit = mp_dtype_size(data->type)};
    MP_TRY(slices_of(x, rows, batched + depth, &out->slices));
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&out->slices, data->type, &bytes));
    k_indexed *walk = &out->walk;
    walk->depth = depth;
    walk->is_narrow = indices->type == MP_I32;
    const int64_t run = mp_shape_span(x, batched + depth, x->rank);
    const size_t size = out->unit;
    if (whole_units && run > 0) {
        out->unit = mp_move_unit(p, run * (int64_t)size, size);
    }
    const int64_t shrink = (int64_t)(out->unit / size);
    const mp_shape space = {.rank = 3,
                            .dim = {mp_shape_span(rows, 0, batched),
                                    mp_shape_span(rows, batched, rows->rank - 1), run / shrink}};
    int64_t stride[MP_RANK_MAX];
    mp_shape_strides(x, stride);
    for (int d = 0; d < depth; d++) {
        walk->dim[d] = x->dim[batched + d];
        walk->stride[d] = stride[batched + d] / shrink;
    }
    walk->count = mp_shape_count(&space);
    if (walk->count == 0) {
        return MP_OK;
    }
    int64_t views[2][MP_RANK_MAX] = {{mp_shape_span(x, batched, x->rank) / shrink, 0, 1},
                                     {space.dim[1] * depth, depth, 0}};
    MP_TRY(mp_layout_make(&space, views, 2, &walk->layout));
    return check_dims(walk);
}
