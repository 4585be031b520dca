/* unfold.c - UnfoldTensor: the windows of one dimension, which overlap where the step is shorter
 * than they are, with their elements along a new last dimension: one strided copy.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/move/strided_copy.h"

static mp_status read_windows(const mp_planner *p, int *axis, int64_t *size, int64_t *step) {
    const mp_shape *x = &p->in[0].shape;
    *size = mp_node_int(p->node, "size", 0);
    *step = mp_node_int(p->node, "step", 1);
    if (x->rank < 1 || x->rank >= MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "an input of rank %d; 1 to %d are supported", x->rank,
                       MP_RANK_MAX - 1);
    }
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "dim", -1), x->rank, "dim", axis));
    return *size >= 1 && *step >= 1 && *size <= x->dim[*axis]
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "size %lld and step %lld for a dimension of %lld elements; the size must "
                         "be at least 1 and at most that, the step at least 1",
                         (long long)*size, (long long)*step, (long long)x->dim[*axis]);
}

static mp_status plan_unfold(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int64_t size = 0, step = 0;
    int axis = 0;
    MP_TRY(read_windows(p, &axis, &size, &step));
    mp_shape out = x->shape;
    out.dim[axis] = (x->shape.dim[axis] - size) / step + 1;
    out.dim[out.rank++] = size;
    MP_TRY(mp_plan_output(p, 0, x->type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    mp_strided from = {.ref = MP_IN(0)}, to = {.ref = MP_OUT(0)};
    mp_shape_strides(&x->shape, from.stride);
    mp_shape_strides(&out, to.stride);
    from.stride[x->shape.rank] = from.stride[axis];
    from.stride[axis] *= out.dim[axis] > 1 ? step : 0; /* a step beyond the end may be any number */
    return mp_plan_strided_copy(p, &out, mp_dtype_size(x->type), &from, &to);
}

static const mp_attr_def unfold_attrs[] = {
    {"dim", MP_ATTR_INT}, {"size", MP_ATTR_INT}, {"step", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "UnfoldTensor",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_ALL_TYPES}},
     .attrs = unfold_attrs,
     .plan = plan_unfold},
};

const mp_op_family mp__family_unfold = {"unfold", ops, MP_COUNT_OF(ops)};
