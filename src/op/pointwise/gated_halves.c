/* gated_halves.c - GatedHalves, what the compiler makes behind two products that have become one,
 * side by side: an activation of the left half of each row, or with `last` of the right one, times
 * the other half. `gate` is "swish", x times the sigmoid of alpha x, "gelu", "gelu_tanh",
 * "sigmoid", or "sigmoid_tanh", a sigmoid times the tanh of the other half.
 * Kernel: pointwise/gated_halves.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/halves_gates.h"
#include "op/core/families.h"
#include "op/core/plan.h"
#include "op/pointwise/gated_steps.h"
#include "op/pointwise/halves_args.h"

#include <string.h>

static mp_status read_gate(const mp_planner *p, int32_t kinds, mp_gate *out) {
    static const char *const names[] = {[K_GATE_SWISH] = "swish",
                                        [K_GATE_GELU] = "gelu",
                                        [K_GATE_GELU_BY_TANH] = "gelu_tanh",
                                        [K_GATE_OF_SIGMOID] = "sigmoid",
                                        [K_GATE_OF_SIGMOID_AND_TANH] = "sigmoid_tanh"};
    const mp_attr *by = mp_node_attr(p->node, "gate");
    out->alpha = mp_node_float(p->node, "alpha", 1);
    out->last = mp_node_flag(p->node, "last", false);
    for (int32_t i = 0; by != NULL && i < kinds; i++) {
        if (strcmp(by->s, names[i]) == 0) {
            out->kind = i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "gate is \"%s\", which is no activation",
                   by != NULL ? by->s : "");
}

mp_status mp_gate_read(const mp_planner *p, mp_gate *out) {
    return read_gate(p, K_GATE_OF_SIGMOID, out);
}

mp_status mp_gated_shape(const mp_shape *x, mp_shape *out) {
    *out = *x;
    if (x->rank < 1 || x->dim[x->rank - 1] % 2 != 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "rows of shape %s have no halves", mp_shape_text(x, text));
    }
    out->dim[x->rank - 1] /= 2;
    return MP_OK;
}

mp_status mp_plan_gated(mp_planner *p, mp_dtype type, const mp_gate *gate, mp_ref x,
                        const mp_shape *shape, mp_ref out) {
    mp_gated_halves_args args = {.gate = gate->kind, .alpha = gate->alpha};
    if (mp_shape_count(shape) == 0) {
        return MP_OK;
    }
    args.halves = mp_halves_of(p, type, shape);
    args.gate_from = gate->last ? args.halves.half : 0;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "gated_halves_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.halves.count, 1), args,
                     MP_BIND(mp_gated_halves_args, x, x), MP_BIND(mp_gated_halves_args, out, out));
}

static mp_status plan_gated_halves(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_gate gate;
    mp_shape out;
    MP_TRY(read_gate(p, K_GATE_OF_SIGMOID_AND_TANH + 1, &gate));
    MP_TRY(mp_gated_shape(&x->shape, &out));
    MP_TRY(mp_plan_output(p, 0, x->type, &out));
    return mp_plan_gated(p, x->type, &gate, MP_IN(0), &out, MP_OUT(0));
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"alpha", MP_ATTR_FLOAT}, {"gate", MP_ATTR_STRING}, {"last", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "GatedHalves",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_gated_halves},
};

const mp_op_family mp__family_gated_halves = {"gated_halves", ops, MP_COUNT_OF(ops)};
