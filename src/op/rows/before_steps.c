/* before_steps.c - see before_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/before_steps.h"

#include "op/pointwise/gated_steps.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/rows/norm_steps.h"

mp_status mp_before_read(mp_planner *p, int first, mp_before *out) {
    const mp_tensor *x = &p->in[0], *skip = mp_plan_in(p, first), *by = mp_plan_in(p, first + 1);
    mp_shape shape = x->shape;
    if (skip != NULL) {
        MP_TRY(mp_shape_broadcast(&x->shape, &skip->shape, &shape));
    }
    if (shape.rank < 1 || by == NULL || mp_shape_count(&by->shape) != shape.dim[shape.rank - 1]) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "rows of shape %s have another number of scales",
                       mp_shape_text(&shape, text));
    }
    if (skip == NULL && mp_plan_wants(p, 1)) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no sum of one tensor");
    }
    *out = (mp_before){
        .args = {.columns = shape.dim[shape.rank - 1],
                 .epsilon = mp_node_float(p->node, "epsilon", 1e-5f)},
        .x = MP_IN(0),
        .skip = skip != NULL ? MP_IN(first) : MP_NOWHERE,
        .scale = MP_IN(first + 1),
        .sum = mp_plan_wants(p, 1) ? MP_OUT(1) : MP_NOWHERE,
        .in = {*x, skip != NULL ? *skip : (mp_tensor){.type = MP_NONE}},
        .made = {.type = x->type, .shape = shape},
    };
    return mp_plan_output(p, 1, x->type, &shape);
}

mp_status mp_before_read_gate(const mp_planner *p, mp_before *out) {
    *out = (mp_before){.is_gate = true, .x = MP_IN(0), .in = {p->in[0]}, .made = p->in[0]};
    mp_gate gate;
    MP_TRY(mp_gate_read(p, &gate));
    out->args.gate = gate.kind;
    out->args.alpha = gate.alpha;
    MP_TRY(mp_gated_shape(&p->in[0].shape, &out->made.shape));
    out->args.columns = out->made.shape.dim[out->made.shape.rank - 1];
    return MP_OK;
}

/* Whether x and skip, if there is one, are alike. */
static bool is_even(const mp_before *before) {
    return before->in[1].type == MP_NONE ||
           mp_shape_equal(&before->in[0].shape, &before->in[1].shape);
}

bool mp_before_fits(const mp_planner *p, const mp_before *before, int64_t lanes) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(before->made.type);
    return mp_shape_count(&before->made.shape) == before->args.columns && is_even(before) &&
           p->align >= 16 && before->args.columns % pack == 0 &&
           before->args.columns <= lanes * K_BEFORE_PACKS * pack &&
           (before->is_gate || mp_node_constant(p->node, (int)before->scale.index));
}

static mp_status plan_norm(mp_planner *p, const mp_before *before, mp_ref out) {
    const mp_dtype type = before->made.type;
    const mp_shape *shape = &before->made.shape;
    mp_norm n = {.type = type,
                 .out_type = type,
                 .x = before->x,
                 .skip = before->skip,
                 .scale = before->scale,
                 .out = out,
                 .sum = before->sum};
    n.args = (mp_norm_args){.rows = mp_shape_span(shape, 0, shape->rank - 1),
                            .columns = before->args.columns,
                            .skip_rows = mp_shape_span(shape, 0, shape->rank - 1),
                            .epsilon = before->args.epsilon};
    if (!is_even(before) && mp_shape_count(shape) > 0) { /* the sum first, then it is normalised */
        n.x = n.sum;
        n.skip = n.sum = MP_NOWHERE;
        if (n.x.place == MP_PLACE_NONE) {
            MP_TRY(mp_plan_scratch_shape(p, shape, type, &n.x));
        }
        MP_TRY(mp_pointwise2(p, "add", type, (mp_operand){before->x, &before->in[0].shape},
                             (mp_operand){before->skip, &before->in[1].shape}, n.x, shape, 0, 0));
    }
    return mp_plan_norm(p, &n);
}

mp_status mp_plan_before(mp_planner *p, const mp_before *before, mp_ref *out) {
    const mp_dtype type = before->made.type;
    MP_TRY(mp_plan_scratch_shape(p, &before->made.shape, type, out));
    const mp_gate gate = {.kind = before->args.gate, .alpha = before->args.alpha};
    return before->is_gate ? mp_plan_gated(p, type, &gate, before->x, &before->made.shape, *out)
                           : plan_norm(p, before, *out);
}
