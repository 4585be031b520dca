/* gelu.c - Gelu in its forms: by erf or by tanh, and with a bias that is added before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
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

static const mp_attr_def approximate[] = {{"approximate", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def alpha[] = {{"alpha", MP_ATTR_FLOAT}, {NULL, 0}};

#define ROW(domain_, name_, version, plan_, attrs_)                                                \
    {                                                                                              \
        .domain = (domain_), .name = (name_), .since = (version), .until = version,                \
        .types = {{"T", MP_FLOATS}}, .in_place = {{0, 0}}, .in_place_count = 1, .attrs = (attrs_), \
        .plan = (plan_)                                                                            \
    }

static const mp_op ops[] = {
    ROW("", "Gelu", 20, plan_gelu, approximate),
    ROW("com.microsoft", "Gelu", 1, plan_gelu, NULL),
    ROW("com.microsoft", "QuickGelu", 1, plan_quick_gelu, alpha),
    ROW("com.microsoft", "FastGelu", 1, plan_fast_gelu, NULL),
    ROW("com.microsoft", "BiasGelu", 1, plan_bias_gelu, NULL),
};

const mp_op_family mp__family_gelu = {"gelu", ops, MP_COUNT_OF(ops)};
