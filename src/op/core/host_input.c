/* host_input.c - reads small integer lists.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/host_input.h"

#include <string.h>

/* An operator that reads an input which its row does not list would read device memory. */
static mp_status check_on_host(const mp_planner *p, int i, const char *what) {
    return mp_op_host_in(p->node->op, (size_t)i)
               ? MP_OK
               : MP_FAIL(UNSUPPORTED,
                         "%s is given as input %d, which is on the device and cannot be read while "
                         "the node is planned",
                         what, i);
}

mp_status mp_host_ints(const mp_planner *p, int i, const char *what, int most, int64_t *out,
                       int *count) {
    const mp_tensor *tensor = mp_plan_in(p, i);
    *count = -1;
    if (tensor == NULL) {
        return MP_OK;
    }
    MP_TRY(check_on_host(p, i, what));
    const int64_t length = mp_shape_count(&tensor->shape);
    if (tensor->shape.rank > 1 || length > most) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; a list of at most %d is needed", what,
                       mp_shape_text(&tensor->shape, text), most);
    }
    if (tensor->type != MP_I64 && tensor->type != MP_I32) {
        return MP_FAIL(INVALID_ARGUMENT, "%s is of type %s; int64 or int32 is needed", what,
                       mp_dtype_name(tensor->type));
    }
    for (int64_t k = 0; k < length; k++) {
        out[k] = tensor->type == MP_I64 ? ((const int64_t *)tensor->data)[k]
                                        : ((const int32_t *)tensor->data)[k];
    }
    *count = (int)length;
    return MP_OK;
}

mp_status mp_listed_ints(const mp_planner *p, const char *name, int i, int most, int64_t *out,
                         int *count) {
    const mp_attr *attr = mp_node_attr(p->node, name);
    if (attr == NULL || attr->kind != MP_ATTR_INTS) {
        if (i >= 0) {
            return mp_host_ints(p, i, name, most, out, count);
        }
        *count = -1;
        return MP_OK;
    }
    if (attr->count > (size_t)most) {
        return MP_FAIL(INVALID_ARGUMENT, "attribute %s has %zu values; at most %d are possible",
                       name, attr->count, most);
    }
    if (attr->count > 0) {
        memcpy(out, attr->ints, attr->count * sizeof *out);
    }
    *count = (int)attr->count;
    return MP_OK;
}

mp_status mp_listed_axes(const mp_planner *p, const char *name, int i, int rank, uint32_t *mask,
                         int *count) {
    int64_t axes[MP_RANK_MAX];
    *mask = 0;
    MP_TRY(mp_listed_ints(p, name, i, MP_RANK_MAX, axes, count));
    for (int k = 0; k < *count; k++) {
        int axis = 0;
        MP_TRY(mp_shape_axis(axes[k], rank, name, &axis));
        if ((*mask & 1u << axis) != 0) {
            return MP_FAIL(INVALID_ARGUMENT, "%s names axis %d twice", name, axis);
        }
        *mask |= 1u << axis;
    }
    return MP_OK;
}
