/* quantized_attention.c - QAttention of com.microsoft: Attention whose projection is a product of
 * 8-bit integers. What it gives are floats, with which all goes on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/core/families.h"
#include "op/quantize/integer_steps.h"

enum {
    IN_X,
    IN_WEIGHTS,
    IN_BIAS,
    IN_X_SCALE,
    IN_WEIGHTS_SCALE,
    IN_MASK,
    IN_X_ZERO,
    IN_WEIGHTS_ZERO,
    IN_PAST
};
enum { OUT_Y, OUT_PRESENT };

static mp_status read_sizes(const mp_planner *p, mp_dense *d, mp_integer_args *args) {
    const int operands[3] = {IN_X, IN_WEIGHTS, IN_BIAS};
    mp_projection x;
    MP_TRY(mp_dense_operands(p, operands, 3, &x));
    *d = (mp_dense){.type = p->in[IN_BIAS].type};
    args->m = x.tokens;
    args->n = x.out;
    args->k = x.in;
    return mp_dense_read(p, IN_X, x.out, d);
}

/* One value for all, or, of the weights, one for each column. */
static mp_status read_side(const mp_planner *p, int side, const mp_integer_args *args,
                           k_integer_side *out) {
    static const char *const names[2][2] = {{"input_zero_point", "input_scale"},
                                            {"weight_zero_point", "weight_scale"}};
    const mp_tensor *zero = mp_plan_in(p, IN_X_ZERO + side);
    const mp_tensor *scale = mp_plan_in(p, IN_X_SCALE + side);
    const int64_t lines = side == 0 ? 1 : args->n;
    *out = (k_integer_side){.flip = mp_integer_flip(p->in[side].type)};
    MP_TRY(mp_integer_lines(zero, names[side][0], lines, 1, &out->zero_step, &out->zero_batch));
    return mp_integer_lines(scale, names[side][1], lines, 1, &out->scale_step, &out->scale_batch);
}

static mp_ref ref_of(const mp_planner *p, int input) {
    return mp_plan_in(p, input) != NULL ? MP_IN(input) : MP_NOWHERE;
}

static mp_status project(mp_planner *p, const mp_dense *d, mp_integer_args *args, mp_ref *out) {
    const mp_shape one = {.rank = 0};
    const mp_shape shape = {.rank = 2, .dim = {args->m, args->n}};
    int64_t stride[2][MP_RANK_MAX] = {{0}};
    MP_TRY(read_side(p, 0, args, &args->side[0]));
    MP_TRY(read_side(p, 1, args, &args->side[1]));
    MP_TRY(mp_layout_make(&one, stride, 2, &args->batch));
    MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, out));
    args->kind = d->type == MP_F16 ? K_INTEGER_F16 : K_INTEGER_F32;
    args->scale_type = mp_integer_scale(d->type);
    const mp_integer_refs refs = {.matrix = {MP_IN(IN_X), MP_IN(IN_WEIGHTS)},
                                  .zero = {ref_of(p, IN_X_ZERO), ref_of(p, IN_WEIGHTS_ZERO)},
                                  .scale = {MP_IN(IN_X_SCALE), MP_IN(IN_WEIGHTS_SCALE)},
                                  .bias = MP_IN(IN_BIAS),
                                  .out = *out};
    return mp_shape_count(&shape) > 0 ? mp_plan_integer(p, "product", args, &refs) : MP_OK;
}

static mp_status accept_quantized(const mp_planner *p) {
    return mp_node_int(p->node, "past_present_share_buffer", 0) == 0
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "past_present_share_buffer is not supported: no input says "
                                      "how much of the buffer is the past");
}

static mp_status plan_quantized(mp_planner *p) {
    mp_dense d;
    mp_integer_args args = {.kind = K_INTEGER_F32};
    mp_ref projected = MP_NOWHERE;
    MP_TRY(accept_quantized(p));
    MP_TRY(read_sizes(p, &d, &args));
    const mp_shape y = {.rank = 3, .dim = {d.batch, d.rows, d.heads * d.value}};
    MP_TRY(mp_plan_output(p, OUT_Y, d.type, &y));
    MP_TRY(mp_dense_stacked(p, IN_PAST, OUT_PRESENT, -1, &d));
    mp_attention a = {.debug_mode = MP_DEBUG_NONE};
    mp_dense_rule(p, &d, &a);
    MP_TRY(mp_dense_mask(p, IN_MASK, MP_DENSE_CLASSIC, &d, &a));
    MP_TRY(project(p, &d, &args, &projected));
    return mp_dense_attend_projected(p, &d, projected, &a);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"do_rotary", MP_ATTR_INT},
                                    {"mask_filter_value", MP_ATTR_FLOAT},
                                    {"num_heads", MP_ATTR_INT},
                                    {"past_present_share_buffer", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"unidirectional", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QAttention",
     .since = 1,
     .until = 1,
     .types = {{"T1", MP_BIT(MP_I8) | MP_BIT(MP_U8)},
               {"T2", MP_BIT(MP_I8) | MP_BIT(MP_U8)},
               {"T3", MP_BIT(MP_F32) | MP_BIT(MP_F16)},
               {"T4", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .accept = accept_quantized,
     .plan = plan_quantized},
};

const mp_op_family mp__family_quantized_attention = {"quantized_attention", ops, MP_COUNT_OF(ops)};
