/* ordered_longformer.c - QOrderedLongformerAttention of com.microsoft: projections are products of
 * bytes, rounded to bytes; what these stand for are the Q, K and V of LongformerAttention in
 * float16, and what that gives is rounded to bytes again. Biases are in steps of a projection.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/longformer_steps.h"
#include "op/core/families.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/quantize/ordered_steps.h"

enum {
    IN_X,
    IN_X_SCALE,
    IN_WEIGHT,
    IN_WEIGHT_SCALE,
    IN_BIAS,
    IN_BIAS_SCALE, /* says nothing */
    IN_SIDES_SCALE,
    IN_MASK,
    IN_GLOBAL_WEIGHT,
    IN_GLOBAL_WEIGHT_SCALE,
    IN_GLOBAL_BIAS,
    IN_GLOBAL_SIDES_SCALE,
    IN_FLAGS,
    IN_Y_SCALE
};

static const mp_longformer_inputs inputs = {.weights = IN_WEIGHT,
                                            .bias = IN_BIAS,
                                            .mask = IN_MASK,
                                            .global_weights = IN_GLOBAL_WEIGHT,
                                            .global_bias = IN_GLOBAL_BIAS,
                                            .flags = IN_FLAGS};

static mp_status accept_ordered(const mp_planner *p) {
    static const mp_order_rule orders[] = {{"order_input", K_ORDER_ROW},
                                           {"order_weight", K_ORDER_COL},
                                           {"order_global_weight", K_ORDER_COL},
                                           {"order_output", K_ORDER_ROW}};
    return mp_orders_check(p, orders, MP_COUNT_OF(orders));
}

static mp_status prepare_weight(mp_planner *p, int i) {
    return i == IN_WEIGHT || i == IN_GLOBAL_WEIGHT ? mp_ordered_prepare(p, i) : MP_OK;
}

/* A bias as what its steps stand for. */
static mp_status scale_bias(mp_planner *p, int bias, int scale, mp_ref *out) {
    const mp_shape one = {.rank = 0};
    const mp_shape *shape = &p->in[bias].shape;
    const mp_operand steps = {MP_IN(bias), shape};
    const mp_operand step = {MP_IN(scale), &one};
    MP_TRY(mp_plan_scratch_shape(p, shape, MP_F32, out));
    return mp_pointwise2(p, "mul", MP_F32, steps, step, *out, shape, 0, 0);
}

/* Q, K and V of all tokens. */
static mp_status project(mp_planner *p, const mp_longformer *x, bool global, mp_dense *own) {
    const int bias = global ? IN_GLOBAL_BIAS : IN_BIAS;
    mp_ordered_product product = {.rows = x->tokens,
                                  .in = x->width,
                                  .out = 3 * x->width,
                                  .x = MP_IN(IN_X),
                                  .weights = global ? IN_GLOBAL_WEIGHT : IN_WEIGHT,
                                  .x_scale = IN_X_SCALE,
                                  .weight_scale = global ? IN_GLOBAL_WEIGHT_SCALE : IN_WEIGHT_SCALE,
                                  .out_scale = global ? IN_GLOBAL_SIDES_SCALE : IN_SIDES_SCALE};
    const mp_matrices sides = {1, product.rows, product.out};
    mp_ordered_args widen = mp_ordered_bytes(&sides);
    mp_reorder c = {.type = MP_F16, .x_scale = MP_IN(product.out_scale)};
    MP_TRY(scale_bias(p, bias, product.out_scale, &product.bias));
    MP_TRY(mp_plan_ordered_product(p, &product, &c.x));
    MP_TRY(mp_plan_scratch_of(p, widen.count, MP_F16, &c.out));
    widen.out_bytes = 0;
    MP_TRY(mp_plan_reorder(p, &widen, &c));
    *own = x->d;
    mp_dense_place(own, c.out);
    return MP_OK;
}

static mp_status plan_ordered(mp_planner *p) {
    static const int scales[] = {
        IN_X_SCALE, IN_WEIGHT_SCALE, IN_SIDES_SCALE, IN_GLOBAL_WEIGHT_SCALE, IN_GLOBAL_SIDES_SCALE,
        IN_Y_SCALE};
    mp_longformer x;
    mp_dense own[2];
    MP_TRY(accept_ordered(p));
    MP_TRY(mp_longformer_read(p, &inputs, false, &x));
    MP_TRY(mp_single_scales(p, scales, MP_COUNT_OF(scales)));
    MP_TRY(mp_plan_output(p, 0, MP_I8, &p->in[IN_X].shape));
    if (mp_shape_count(&p->in[IN_X].shape) == 0) {
        return MP_OK;
    }
    x.d.type = MP_F16;
    MP_TRY(project(p, &x, false, &own[0]));
    MP_TRY(project(p, &x, true, &own[1]));
    const mp_matrices y = {1, x.tokens, x.width};
    mp_ordered_args round = mp_ordered_bytes(&y);
    mp_reorder c = {.type = MP_F16, .out = MP_OUT(0), .out_scale = MP_IN(IN_Y_SCALE)};
    MP_TRY(mp_plan_scratch_of(p, round.count, MP_F16, &c.x));
    MP_TRY(mp_longformer_attend(p, &x, &inputs, own, c.x));
    round.x_bytes = 0;
    return mp_plan_reorder(p, &round, &c);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"num_heads", MP_ATTR_INT},
                                    {"order_global_weight", MP_ATTR_INT},
                                    {"order_input", MP_ATTR_INT},
                                    {"order_output", MP_ATTR_INT},
                                    {"order_weight", MP_ATTR_INT},
                                    {"window", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QOrderedLongformerAttention",
     .since = 1,
     .until = 1,
     .types = {{"Q", MP_BIT(MP_I8)},
               {"S", MP_BIT(MP_F32)},
               {"F", MP_BIT(MP_F16)},
               {"G", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .accept = accept_ordered,
     .plan = plan_ordered,
     .prepare = prepare_weight},
};

const mp_op_family mp__family_ordered_longformer = {"ordered_longformer", ops, MP_COUNT_OF(ops)};
