/* gated_halves.c - GatedHalves, what the compiler makes behind two products that have become one,
 * side by side: an activation of the left half of each row times its right half. `gate` is "swish",
 * x times the sigmoid of alpha x, "gelu" or "gelu_tanh".
 * Kernel: pointwise/gated_halves.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/plan.h"
#include "op/pointwise/halves_args.h"

#include <string.h>

static mp_status read_gate(const mp_planner *p, mp_gated_halves_args *args) {
    static const char *const names[] = {
        [K_GATE_SWISH] = "swish", [K_GATE_GELU] = "gelu", [K_GATE_GELU_BY_TANH] = "gelu_tanh"};
    const mp_attr *gate = mp_node_attr(p->node, "gate");
    args->alpha = mp_node_float(p->node, "alpha", 1);
    for (size_t i = 0; gate != NULL && i < MP_COUNT_OF(names); i++) {
        if (strcmp(gate->s, names[i]) == 0) {
            args->gate = (int32_t)i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "gate is \"%s\", which is no activation",
                   gate != NULL ? gate->s : "");
}

static mp_status plan_gated_halves(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_shape out = x->shape;
    mp_gated_halves_args args = {.gate = K_GATE_SWISH};
    MP_TRY(read_gate(p, &args));
    if (out.rank < 1 || out.dim[out.rank - 1] % 2 != 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "rows of shape %s have no halves",
                       mp_shape_text(&x->shape, text));
    }
    out.dim[out.rank - 1] /= 2;
    MP_TRY(mp_plan_output(p, 0, x->type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    args.halves = mp_halves_of(p, x->type, &out);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "gated_halves_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.halves.count, 1), args,
                     MP_BIND(mp_gated_halves_args, x, MP_IN(0)),
                     MP_BIND(mp_gated_halves_args, out, MP_OUT(0)));
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"alpha", MP_ATTR_FLOAT}, {"gate", MP_ATTR_STRING}, {NULL, 0}};

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
