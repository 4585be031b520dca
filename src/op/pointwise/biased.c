/* biased.c - what diffusion models add a bias in: BiasAdd and BiasSplitGelu.
 * Kernel: pointwise/split_gelu.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/fused/fused_steps.h"
#include "op/pointwise/halves_args.h"

static bool is_row_of(const mp_shape *bias, const mp_shape *x) {
    return bias->rank == 1 && x->rank > 0 && bias->dim[0] == x->dim[x->rank - 1];
}

static mp_status check_bias(const mp_planner *p) {
    const mp_shape *x = &p->in[0].shape, *bias = &p->in[1].shape;
    char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
    return is_row_of(bias, x)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "the bias of shape %s is not a row of X of shape %s",
                         mp_shape_text(bias, text), mp_shape_text(x, x_text));
}

/* ---- BiasAdd ---- */

static mp_status plan_bias_add(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape *skip = &p->in[2].shape;
    MP_TRY(check_bias(p));
    if (!mp_shape_equal(&x->shape, skip)) {
        char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "skip of shape %s; the shape of X, %s, is needed",
                       mp_shape_text(skip, text), mp_shape_text(&x->shape, x_text));
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    mp_expression e = {.input_count = 0};
    const mp_operand in[] = {
        {MP_IN(0), &x->shape}, {MP_IN(1), &p->in[1].shape}, {MP_IN(2), &x->shape}};
    const int first = mp_expression_input(&e, x->type);
    const int biased =
        mp_expression_function(&e, "add", first, mp_expression_input(&e, x->type), 0, 0);
    const int sum =
        mp_expression_function(&e, "add", biased, mp_expression_input(&e, x->type), 0, 0);
    const mp_ref out = MP_OUT(0);
    return mp_expression_output(&e, sum) ? mp_plan_fused(p, &e, in, &out, &x->shape)
                                         : MP_FAIL(INTERNAL, "the sum has no function");
}

static int express_bias_add(mp_expresser *e) {
    const mp_tensor *in = e->in;
    if (!is_row_of(&in[1].shape, &in[0].shape) || !mp_shape_equal(&in[0].shape, &in[2].shape)) {
        return MP_NO_REGISTER;
    }
    const int x = e->input(e, 0);
    const int biased = mp_expression_function(e->to, "add", x, e->input(e, 1), 0, 0);
    return mp_expression_function(e->to, "add", biased, e->input(e, 2), 0, 0);
}

/* ---- BiasSplitGelu: the left half of each row times Gelu of the right half ---- */

static mp_status plan_split_gelu(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    MP_TRY(check_bias(p));
    mp_shape out = x->shape;
    int64_t *last = &out.dim[out.rank - 1];
    if (*last % 2 != 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s cannot be split into halves; its last dimension must be even",
                       mp_shape_text(&x->shape, text));
    }
    *last /= 2;
    MP_TRY(mp_plan_output(p, 0, x->type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    const mp_split_gelu_args args = {.halves = mp_halves_of(p, x->type, &out)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "split_gelu_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.halves.count, 1), args,
                     MP_BIND(mp_split_gelu_args, x, MP_IN(0)),
                     MP_BIND(mp_split_gelu_args, bias, MP_IN(1)),
                     MP_BIND(mp_split_gelu_args, out, MP_OUT(0)));
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 };

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "BiasAdd",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .in_place = {{0, 0}, {2, 0}},
     .in_place_count = 2,
     .plan = plan_bias_add,
     .express = express_bias_add},
    {.domain = "com.microsoft",
     .name = "BiasSplitGelu",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .plan = plan_split_gelu},
};

const mp_op_family mp__family_biased = {"biased", ops, MP_COUNT_OF(ops)};
