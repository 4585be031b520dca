/* where.c - Where and Pow: element-wise operators whose inputs differ in type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise_args.h"
#include "op/families.h"

static mp_status plan_where(mp_planner *p) {
    mp_shape shape = p->in[0].shape;
    MP_TRY(mp_shape_broadcast(&shape, &p->in[1].shape, &shape));
    MP_TRY(mp_shape_broadcast(&shape, &p->in[2].shape, &shape));
    MP_TRY(mp_plan_output(p, 0, p->in[1].type, &shape));
    mp_where_args args = {.count = mp_shape_count(&shape)};
    if (args.count == 0) {
        return MP_OK;
    }
    int64_t stride[3][MP_RANK_MAX];
    for (int i = 0; i < 3; i++) {
        mp_shape_broadcast_strides(&p->in[i].shape, &shape, stride[i]);
        args.broadcast |= mp_shape_count(&p->in[i].shape) != args.count;
    }
    mp_layout_make(&shape, stride, 3, &args.layout);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "where_b%zu", mp_dtype_size(p->in[1].type) * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_where_args, condition, MP_IN(0)),
                     MP_BIND(mp_where_args, x, MP_IN(1)), MP_BIND(mp_where_args, y, MP_IN(2)),
                     MP_BIND(mp_where_args, out, MP_OUT(0)));
}

static mp_status plan_pow(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *y = &p->in[1];
    mp_shape shape;
    MP_TRY(mp_shape_broadcast(&x->shape, &y->shape, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    mp_broadcast2_args args = {.count = mp_shape_count(&shape)};
    if (args.count == 0) {
        return MP_OK;
    }
    int64_t stride[2][MP_RANK_MAX];
    mp_shape_broadcast_strides(&x->shape, &shape, stride[0]);
    mp_shape_broadcast_strides(&y->shape, &shape, stride[1]);
    mp_layout_make(&shape, stride, 2, &args.layout);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "pow_%s_%s", mp_dtype_word(x->type), mp_dtype_word(y->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_broadcast2_args, x, MP_IN(0)),
        MP_BIND(mp_broadcast2_args, y, MP_IN(1)), MP_BIND(mp_broadcast2_args, out, MP_OUT(0)));
}

enum { POW_INTS = 1u << MP_I32 | 1u << MP_I64 };

static const mp_op ops[] = {
    {.domain = "",
     .name = "Pow",
     .since = 7,
     .until = 11,
     .types = {{"T", MP_IEEE_FLOATS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_pow},
    {.domain = "",
     .name = "Pow",
     .since = 12,
     .until = 15,
     .types = {{"T", MP_FLOATS | POW_INTS}, {"T1", MP_FLOATS | POW_INTS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_pow},
    {.domain = "",
     .name = "Where",
     .since = 9,
     .until = 16,
     .types = {{"B", MP_BIT(MP_BOOL)}, {"T", MP_ALL_TYPES}},
     .in_place = {{1, 0}, {2, 0}},
     .in_place_count = 2,
     .plan = plan_where},
};

const mp_op_family mp__family_where = {"where", ops, MP_COUNT_OF(ops)};
