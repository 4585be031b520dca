/* fused.c - the operator that runs an expression: one kernel for what was several nodes.
 *
 * No model names it. The inputs broadcast to the shape of the outputs, which all have the same;
 * with reductions some inputs and outputs have that of rows (expression.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/fused_steps.h"

static mp_status check_inputs(const mp_planner *p, const mp_expression *e) {
    if (p->in_count != e->input_count || p->out_count != e->output_count) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "the expression has %d inputs and %d outputs, the node %d and %d",
                       e->input_count, e->output_count, p->in_count, p->out_count);
    }
    for (int i = 0; i < p->in_count; i++) {
        if (p->in[i].type != e->inputs[i]) {
            return MP_FAIL(INVALID_ARGUMENT, "input %d is of type %s, not %s", i,
                           mp_dtype_name(p->in[i].type), mp_dtype_name(e->inputs[i]));
        }
    }
    return MP_OK;
}

/* That what is said to be of rows is. */
static mp_status check_rows(const mp_planner *p, const mp_expression *e, const mp_shape *shape) {
    char text[MP_SHAPE_TEXT], all[MP_SHAPE_TEXT];
    if (shape->rank < e->row_dims) {
        return MP_FAIL(INVALID_ARGUMENT, "rows of %d dimensions in a tensor of shape %s",
                       e->row_dims, mp_shape_text(shape, all));
    }
    for (int i = 0; i < p->in_count && e->row_dims > 0; i++) {
        const mp_shape *in = &p->in[i].shape;
        const mp_shape rows = mp_shape_of_rows(shape, e->row_dims, e->row_dims);
        const bool is_flat = (e->flat_inputs >> i & 1) != 0;
        const bool is_row = (e->row_inputs >> i & 1) != 0;
        const bool fits = is_flat
                              ? mp_shape_equal(in, &rows)
                              : mp_shape_span(in, MP_MAX(in->rank - e->row_dims, 0), in->rank) == 1;
        if (is_row && !fits && mp_shape_count(shape) > 0) {
            return MP_FAIL(INVALID_ARGUMENT, "input %d of shape %s is none for rows of shape %s", i,
                           mp_shape_text(in, text), mp_shape_text(shape, all));
        }
    }
    return MP_OK;
}

static mp_status plan_fused(mp_planner *p) {
    mp_expression e;
    mp_shape shape = {.rank = 0};
    mp_operand in[K_FUSED_IN];
    int64_t in_pitch[K_FUSED_IN];
    mp_ref out[K_FUSED_OUT];
    MP_TRY(mp_expression_read(mp_node_string(p->node, "expression", ""), &e));
    MP_TRY(check_inputs(p, &e));
    for (int i = 0; i < p->in_count; i++) {
        in[i] = (mp_operand){MP_IN(i), &p->in[i].shape};
        in_pitch[i] = p->in[i].pitch;
        if ((e.flat_inputs >> i & 1) == 0) {
            MP_TRY(mp_shape_broadcast(&shape, &p->in[i].shape, &shape));
        }
    }
    MP_TRY(check_rows(p, &e, &shape));
    for (int i = 0; i < e.output_count; i++) {
        out[i] = MP_OUT(i);
        const bool is_row = e.row_dims > 0 && mp_expression_is_row(&e, e.outputs[i]);
        const bool is_flat = (e.flat_outputs >> i & 1) != 0;
        const mp_shape rows = mp_shape_of_rows(&shape, e.row_dims, is_flat ? e.row_dims : 0);
        MP_TRY(mp_plan_output(p, i, mp_expression_type(&e, e.outputs[i]), is_row ? &rows : &shape));
    }
    return mp_plan_fused_apart(p, &e, in, in_pitch, out, mp_plan_out_pitch(p, 0), &shape);
}

static const mp_attr_def expression[] = {{"expression", MP_ATTR_STRING}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "Fused",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_ALL_TYPES}},
     .apart_in = UINT32_MAX,
     .apart_out = 1,
     .variadic = true,
     .attrs = expression,
     .plan = plan_fused},
};

const mp_op_family mp__family_fused = {"fused", ops, MP_COUNT_OF(ops)};
