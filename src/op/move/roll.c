/* roll.c - Roll: along each of its axes the element `start` comes first, and what lies before it
 * comes behind the last one. A start counts from the end where it is negative, and is held within
 * the dimension, as that of a Slice.
 *
 * No model names it.
 * Kernel: move/roll.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"

static int64_t start_of(int64_t start, int64_t dim) {
    const int64_t from_front = start < 0 ? start + dim : start;
    const int64_t held = from_front < 0 ? 0 : MP_MIN(from_front, dim);
    return held == dim ? 0 : held;
}

/* Which dimensions move; `*inner`: elements behind the last of them, which stay together. */
static mp_status read_axes(const mp_planner *p, const mp_shape *shape, int *axes,
                           mp_roll_args *args, int64_t *inner) {
    int64_t listed[K_ROLLED], start[K_ROLLED];
    int count = 0, starts = 0;
    int last = 0;
    MP_TRY(mp_listed_ints(p, "axes", -1, K_ROLLED, listed, &count));
    MP_TRY(mp_listed_ints(p, "starts", -1, K_ROLLED, start, &starts));
    if (count < 1 || starts != count) {
        return MP_FAIL(INVALID_ARGUMENT, "axes has %d values and starts %d", count, starts);
    }
    for (int k = 0; k < K_ROLLED; k++) {
        axes[k] = -1;
        args->dim[k] = 1;
    }
    for (int k = 0; k < count; k++) {
        MP_TRY(mp_shape_axis(listed[k], shape->rank, "axes", &axes[k]));
        args->dim[k] = shape->dim[axes[k]];
        args->start[k] = start_of(start[k], args->dim[k]);
        last = MP_MAX(last, axes[k]);
    }
    *inner = mp_shape_span(shape, last + 1, shape->rank);
    return count == 1 || axes[0] != axes[1]
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "axes names axis %d twice", axes[0]);
}

static mp_status plan_roll(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const size_t size = mp_dtype_size(x->type);
    mp_roll_args args = {.count = 0};
    int axes[K_ROLLED];
    int64_t inner = 1;
    int64_t stride[1 + K_ROLLED][MP_RANK_MAX] = {{0}};
    const mp_kernel *kernel = NULL;
    MP_TRY(read_axes(p, &x->shape, axes, &args, &inner));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const size_t unit = mp_move_unit(p, inner * (int64_t)size, size);
    const int last = MP_MAX(axes[0], axes[1]);
    mp_shape space = {.rank = last + 2};
    if (space.rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "axis %d moves; those up to %d can", last, MP_RANK_MAX - 2);
    }
    for (int d = 0; d <= last; d++) {
        space.dim[d] = x->shape.dim[d];
    }
    space.dim[last + 1] = inner * (int64_t)size / (int64_t)unit;
    args.count = mp_shape_count(&space);
    mp_shape_strides(&space, stride[0]);
    for (int k = 0; k < K_ROLLED && axes[k] >= 0; k++) {
        args.stride[k] = stride[0][axes[k]];
        stride[0][axes[k]] = 0;
        stride[1 + k][axes[k]] = 1;
    }
    MP_TRY(mp_layout_make(&space, stride, 1 + K_ROLLED, &args.layout));
    MP_TRY(mp_plan_kernel(p, &kernel, "roll_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_roll_args, x, MP_IN(0)), MP_BIND(mp_roll_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"axes", MP_ATTR_INTS}, {"starts", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "Roll",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_ALL_TYPES}},
     .attrs = attrs,
     .plan = plan_roll},
};

const mp_op_family mp__family_roll = {"roll", ops, MP_COUNT_OF(ops)};
