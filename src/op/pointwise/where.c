/* where.c - Where and Pow: element-wise operators whose inputs differ in type.
 * Kernels: pointwise/pow.cu, pointwise/where.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/pieces.h"
#include "op/fused/expression.h"

static mp_status plan_where(mp_planner *p) {
    mp_shape shape = p->in[0].shape;
    MP_TRY(mp_shape_broadcast(&shape, &p->in[1].shape, &shape));
    MP_TRY(mp_shape_broadcast(&shape, &p->in[2].shape, &shape));
    MP_TRY(mp_plan_output(p, 0, p->in[1].type, &shape));
    const int64_t count = mp_shape_count(&shape);
    const mp_dtype type = p->in[1].type;
    const size_t size = mp_dtype_size(type);
    const mp_kernel *kernel = NULL;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "where_b%zu", size * 8));
    const mp_shape *const in[] = {&p->in[0].shape, &p->in[1].shape, &p->in[2].shape};
    mp_piece at;
    for (int64_t first = 0; first < count; first += at.walk.count) {
        MP_TRY(mp_piece_at(&shape, in, 3, first, &at));
        const mp_where_args args = {.walk = at.walk};
        MP_TRY(MP_LAUNCH(
            p, kernel, mp_plan_grid_stream(p, at.walk.count, (int)(16 / size), 1), args,
            MP_BIND(mp_where_args, condition, mp_ref_element(MP_IN(0), at.in[0], MP_BOOL)),
            MP_BIND(mp_where_args, x, mp_ref_element(MP_IN(1), at.in[1], type)),
            MP_BIND(mp_where_args, y, mp_ref_element(MP_IN(2), at.in[2], type)),
            MP_BIND(mp_where_args, out, mp_ref_element(MP_OUT(0), at.out, type))));
    }
    return MP_OK;
}

static int express_where(mp_expresser *e) {
    const int condition = e->input(e, 0);
    const int x = e->input(e, 1);
    return mp_expression_where(e->to, condition, x, e->input(e, 2));
}

static mp_status plan_pow(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *y = &p->in[1];
    mp_shape shape;
    MP_TRY(mp_shape_broadcast(&x->shape, &y->shape, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    const int64_t count = mp_shape_count(&shape);
    const mp_kernel *kernel = NULL;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "pow_%s_%s", mp_dtype_word(x->type), mp_dtype_word(y->type)));
    const int per_lane = (int)(16 / mp_dtype_size(x->type));
    mp_piece at;
    for (int64_t first = 0; first < count; first += at.walk.count) {
        MP_TRY(mp_piece_at(&shape, (const mp_shape *const[]){&x->shape, &y->shape}, 2, first, &at));
        const mp_pow_args args = {.walk = at.walk};
        MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid_stream(p, at.walk.count, per_lane, 1), args,
                         MP_BIND(mp_pow_args, x, mp_ref_element(MP_IN(0), at.in[0], x->type)),
                         MP_BIND(mp_pow_args, y, mp_ref_element(MP_IN(1), at.in[1], y->type)),
                         MP_BIND(mp_pow_args, out, mp_ref_element(MP_OUT(0), at.out, x->type))));
    }
    return MP_OK;
}

/* Squares and cubes are products, as in kernel/pointwise/pow.cu. */
static int express_pow(mp_expresser *e) {
    float exponent = 0;
    if ((MP_BIT(e->in[0].type) & MP_FLOATS) == 0 || !mp_express_known(e, 1, &exponent) ||
        e->in[1].shape.rank > e->in[0].shape.rank || (exponent != 2.0f && exponent != 3.0f)) {
        return MP_NO_REGISTER;
    }
    const int x = e->input(e, 0);
    const int square = mp_expression_function(e->to, "mul", x, x, 0, 0);
    return exponent == 2.0f ? square : mp_expression_function(e->to, "mul", square, x, 0, 0);
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
     .plan = plan_pow,
     .express = express_pow},
    {.domain = "",
     .name = "Pow",
     .since = 12,
     .until = 15,
     .types = {{"T", MP_FLOATS | POW_INTS}, {"T1", MP_FLOATS | POW_INTS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_pow,
     .express = express_pow},
    {.domain = "",
     .name = "Where",
     .since = 9,
     .until = 16,
     .types = {{"B", MP_BIT(MP_BOOL)}, {"T", MP_ALL_TYPES}},
     .in_place = {{1, 0}, {2, 0}},
     .in_place_count = 2,
     .plan = plan_where,
     .express = express_where},
};

const mp_op_family mp__family_where = {"where", ops, MP_COUNT_OF(ops)};
