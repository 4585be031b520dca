/* channels.c - orders of dimensions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"

#include "op/move/strided_copy.h"

#include <string.h>

bool mp_channels_last(const mp_planner *p) {
    const char *domain = p->node->op->domain;
    return strcmp(domain, MP_NHWC_DOMAIN) == 0 || strcmp(domain, MP_OWN_NHWC_DOMAIN) == 0 ||
           (strcmp(domain, "com.microsoft") == 0 && strncmp(p->node->op->name, "Nhwc", 4) == 0);
}

static mp_shape to_first(const mp_shape *last) {
    mp_shape first = *last;
    if (last->rank > 2) {
        first.dim[1] = last->dim[last->rank - 1];
        memcpy(&first.dim[2], &last->dim[1], (size_t)(last->rank - 2) * sizeof(int64_t));
    }
    return first;
}

mp_shape mp_shape_last(const mp_shape *first) {
    mp_shape last = *first;
    if (first->rank > 2) {
        last.dim[first->rank - 1] = first->dim[1];
        memcpy(&last.dim[1], &first->dim[2], (size_t)(first->rank - 2) * sizeof(int64_t));
    }
    return last;
}

mp_shape mp_shape_first(const mp_planner *p, const mp_shape *stored) {
    return mp_channels_last(p) ? to_first(stored) : *stored;
}

mp_shape mp_shape_stored(const mp_planner *p, const mp_shape *first) {
    return mp_channels_last(p) ? mp_shape_last(first) : *first;
}

/* Steps through a tensor stored with channels last, along the dimensions as ONNX has them. */
static void last_strides(const mp_shape *first, int64_t stride[MP_RANK_MAX]) {
    const mp_shape last = mp_shape_last(first);
    mp_shape steps = {.rank = first->rank};
    mp_shape_strides(&last, steps.dim);
    const mp_shape moved = to_first(&steps);
    memcpy(stride, moved.dim, sizeof moved.dim);
}

void mp_stored_strides(const mp_planner *p, const mp_shape *first, int64_t stride[MP_RANK_MAX]) {
    if (mp_channels_last(p)) {
        last_strides(first, stride);
    } else {
        mp_shape_strides(first, stride);
    }
}

int64_t mp_channel_stride(const mp_planner *p, const mp_shape *first) {
    return mp_channels_last(p) ? 1 : mp_shape_span(first, 2, first->rank);
}

mp_status mp_plan_channels_to_last(mp_planner *p, mp_dtype dtype, const mp_shape *first,
                                   mp_ref source, mp_ref target) {
    const mp_shape last = mp_shape_last(first);
    mp_shape steps = {.rank = first->rank};
    mp_shape_strides(first, steps.dim);
    const mp_shape moved = mp_shape_last(&steps);
    mp_strided from = {.ref = source};
    mp_strided to = {.ref = target};
    memcpy(from.stride, moved.dim, sizeof moved.dim);
    mp_shape_strides(&last, to.stride);
    return mp_plan_strided_copy(p, &last, mp_dtype_size(dtype), &from, &to);
}

mp_status mp_plan_channels_to_first(mp_planner *p, mp_dtype dtype, const mp_shape *first,
                                    mp_ref source, mp_ref target) {
    mp_strided from = {.ref = source};
    mp_strided to = {.ref = target};
    last_strides(first, from.stride);
    mp_shape_strides(first, to.stride);
    return mp_plan_strided_copy(p, first, mp_dtype_size(dtype), &from, &to);
}
