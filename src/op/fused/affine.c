/* affine.c - x times a factor and plus a summand, both given in float and broadcast to x, and one
 * rounding at the end: what normalisation by constants is.
 *
 * No model names it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/fused_steps.h"

enum { X, FACTOR, SUMMAND, INPUTS };

static int add_affine(mp_expression *e, int x, int factor, int summand) {
    const mp_dtype type = mp_expression_type(e, x);
    const int wide = mp_expression_cast(e, x, mp_expression_type(e, factor));
    const int product = mp_expression_function(e, "mul", wide, factor, 0, 0);
    return mp_expression_cast(e, mp_expression_function(e, "add", product, summand, 0, 0), type);
}

static int express_affine(mp_expresser *e) {
    const int x = e->in_count == INPUTS ? e->input(e, X) : MP_NO_REGISTER;
    const int factor = x != MP_NO_REGISTER ? e->input(e, FACTOR) : MP_NO_REGISTER;
    const int summand = factor != MP_NO_REGISTER ? e->input(e, SUMMAND) : MP_NO_REGISTER;
    return summand != MP_NO_REGISTER ? add_affine(e->to, x, factor, summand) : MP_NO_REGISTER;
}

static mp_status check_shapes(const mp_planner *p) {
    const mp_shape *x = &p->in[X].shape;
    for (int i = FACTOR; i < INPUTS; i++) {
        mp_shape all;
        char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
        if (mp_shape_broadcast(x, &p->in[i].shape, &all) != MP_OK || !mp_shape_equal(x, &all)) {
            return MP_FAIL(INVALID_ARGUMENT, "a factor or summand of shape %s for X of shape %s",
                           mp_shape_text(&p->in[i].shape, text), mp_shape_text(x, x_text));
        }
    }
    return MP_OK;
}

static mp_status plan_affine(mp_planner *p) {
    const mp_tensor *x = &p->in[X];
    mp_expression e = {.input_count = 0};
    mp_operand in[INPUTS];
    int reg[INPUTS];
    const mp_ref out = MP_OUT(0);
    if (p->in_count != INPUTS || p->in[FACTOR].type != p->in[SUMMAND].type) {
        return MP_FAIL(INVALID_ARGUMENT, "a factor and a summand of one type are needed");
    }
    MP_TRY(check_shapes(p));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    for (int i = 0; i < INPUTS; i++) {
        in[i] = (mp_operand){MP_IN(i), &p->in[i].shape};
        reg[i] = mp_expression_input(&e, p->in[i].type);
    }
    return mp_expression_output(&e, add_affine(&e, reg[X], reg[FACTOR], reg[SUMMAND]))
               ? mp_plan_fused(p, &e, in, &out, &x->shape)
               : MP_FAIL(INTERNAL, "an expression of three inputs has no room");
}

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "Affine",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}, {"U", MP_BIT(MP_F32) | MP_BIT(MP_F64)}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_affine,
     .express = express_affine},
};

const mp_op_family mp__family_affine = {"affine", ops, MP_COUNT_OF(ops)};
