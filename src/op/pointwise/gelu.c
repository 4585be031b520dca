/* gelu.c - Gelu in its forms: by erf or by tanh, and with a bias that is added before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/expression.h"
#include "op/pointwise/pointwise_steps.h"

#include <string.h>

static mp_status gelu_of(mp_planner *p, const char *word, float factor) {
    const mp_tensor *x = &p->in[0];
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_pointwise1(p, word, x->type, MP_IN(0), MP_OUT(0), mp_shape_count(&x->shape), factor,
                         0);
}

/* The bias is one row, repeated along all others. */
static mp_status biased_gelu_of(mp_planner *p, bool by_tanh) {
    const mp_tensor *x = &p->in[0];
    const mp_shape *bias = &p->in[1].shape;
    const int rank = x->shape.rank;
    if (bias->rank != 1 || rank == 0 || bias->dim[0] != x->shape.dim[rank - 1]) {
        char a[MP_SHAPE_TEXT];
        char b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "the bias of shape %s is not a row of X of shape %s",
                       mp_shape_text(bias, b), mp_shape_text(&x->shape, a));
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_pointwise2(p, "bias_gelu", x->type, (mp_operand){MP_IN(0), &x->shape},
                         (mp_operand){MP_IN(1), bias}, MP_OUT(0), &x->shape, by_tanh ? 1.0f : 0.0f,
                         0);
}

static mp_status plan_gelu(mp_planner *p) {
    const char *form = mp_node_string(p->node, "approximate", "none");
    const bool by_tanh = strcmp(form, "tanh") == 0;
    if (!by_tanh && strcmp(form, "none") != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "approximate '%s' is not known; use none or tanh", form);
    }
    return gelu_of(p, "gelu", by_tanh ? 1.0f : 0.0f);
}

static mp_status plan_quick_gelu(mp_planner *p) {
    return gelu_of(p, "swish", mp_node_float(p->node, "alpha", 1.702f));
}

static mp_status plan_fast_gelu(mp_planner *p) {
    return mp_plan_in(p, 1) != NULL ? biased_gelu_of(p, true) : gelu_of(p, "gelu", 1.0f);
}

static mp_status plan_bias_gelu(mp_planner *p) {
    return biased_gelu_of(p, false);
}

static int express_gelu(mp_expresser *e) {
    const char *form = mp_node_string(e->node, "approximate", "none");
    const bool by_tanh = strcmp(form, "tanh") == 0;
    return by_tanh || strcmp(form, "none") == 0
               ? mp_expression_function(e->to, "gelu", e->input(e, 0), MP_NO_REGISTER,
                                        by_tanh ? 1.0f : 0.0f, 0)
               : MP_NO_REGISTER;
}

static int express_quick_gelu(mp_expresser *e) {
    return mp_expression_function(e->to, "swish", e->input(e, 0), MP_NO_REGISTER,
                                  mp_node_float(e->node, "alpha", 1.702f), 0);
}

static int express_biased(mp_expresser *e, float by_tanh) {
    const int x = e->input(e, 0);
    return mp_expression_function(e->to, "bias_gelu", x, e->input(e, 1), by_tanh, 0);
}

static bool has_bias(const mp_expresser *e) {
    const mp_shape *x = &e->in[0].shape;
    const mp_shape *bias = &e->in[1].shape;
    return bias->rank == 1 && x->rank > 0 && bias->dim[0] == x->dim[x->rank - 1];
}

static int express_fast_gelu(mp_expresser *e) {
    if (e->in_count < 2 || e->in[1].type == MP_NONE) {
        return mp_expression_function(e->to, "gelu", e->input(e, 0), MP_NO_REGISTER, 1.0f, 0);
    }
    return has_bias(e) ? express_biased(e, 1.0f) : MP_NO_REGISTER;
}

static int express_bias_gelu(mp_expresser *e) {
    return has_bias(e) ? express_biased(e, 0.0f) : MP_NO_REGISTER;
}

static const mp_attr_def approximate[] = {{"approximate", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def alpha[] = {{"alpha", MP_ATTR_FLOAT}, {NULL, 0}};

#define ROW(domain_, name_, version, plan_, express_, attrs_)                                      \
    {                                                                                              \
        .domain = (domain_), .name = (name_), .since = (version), .until = version,                \
        .types = {{"T", MP_FLOATS}}, .in_place = {{0, 0}}, .in_place_count = 1, .attrs = (attrs_), \
        .plan = (plan_), .express = (express_)                                                     \
    }

static const mp_op ops[] = {
    ROW("", "Gelu", 20, plan_gelu, express_gelu, approximate),
    ROW("com.microsoft", "Gelu", 1, plan_gelu, express_gelu, NULL),
    ROW("com.microsoft", "QuickGelu", 1, plan_quick_gelu, express_quick_gelu, alpha),
    ROW("com.microsoft", "FastGelu", 1, plan_fast_gelu, express_fast_gelu, NULL),
    ROW("com.microsoft", "BiasGelu", 1, plan_bias_gelu, express_bias_gelu, NULL),
};

const mp_op_family mp__family_gelu = {"gelu", ops, MP_COUNT_OF(ops)};
