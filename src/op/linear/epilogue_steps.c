/* epilogue_steps.c - see epilogue_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/epilogue_steps.h"

#include "op/fused/fused_steps.h"
#include "op/pointwise/activation_steps.h"

static mp_status read_activation(const mp_node *node, mp_activation_choice *out) {
    const mp_attr *params = mp_node_attr(node, "activation_params");
    return mp_activation_read(mp_node_string(node, "activation", NULL),
                              params != NULL ? params->floats : NULL,
                              params != NULL ? params->count : 0, out);
}

mp_status mp_epilogue_read(const mp_planner *p, mp_conv *conv) {
    mp_activation_choice activation;
    MP_TRY(read_activation(p->node, &activation));
    conv->residual = mp_plan_in(p, 3) != NULL;
    conv->residual_behind = conv->residual && activation.kind != MP_ACTIVATION_NONE &&
                            mp_node_int(p->node, "residual_behind", 0) != 0;
    conv->activation = activation.kind;
    conv->alpha = activation.a;
    conv->beta = activation.b;
    return MP_OK;
}

mp_status mp_epilogue_steps(mp_planner *p, const mp_conv *conv, mp_operand y, mp_operand bias,
                            mp_ref out, int64_t pitch, const mp_shape *shape) {
    mp_activation_choice activation;
    mp_expression e = {.input_count = 0};
    mp_operand in[3] = {y};
    int64_t in_pitch[3] = {y.ref.place == out.place && y.ref.index == out.index ? pitch : 0};
    int count = 1;
    int value = mp_expression_input(&e, conv->type);
    if (bias.shape != NULL) {
        in[count++] = bias;
        value = mp_expression_function(&e, "add", value, mp_expression_input(&e, conv->type), 0, 0);
    }
    if (conv->residual && !conv->residual_behind) {
        in[count++] = (mp_operand){MP_IN(3), &p->in[3].shape};
        value = mp_expression_function(&e, "add", value, mp_expression_input(&e, conv->type), 0, 0);
    }
    MP_TRY(read_activation(p->node, &activation));
    if (activation.word != NULL) {
        value = mp_expression_function(&e, activation.word, value, MP_NO_REGISTER, activation.a,
                                       activation.b);
    }
    if (conv->residual_behind) {
        in[count++] = (mp_operand){MP_IN(3), &p->in[3].shape};
        value = mp_expression_function(&e, "add", value, mp_expression_input(&e, conv->type), 0, 0);
    }
    return mp_expression_output(&e, value)
               ? mp_plan_fused_apart(p, &e, in, in_pitch, &out, pitch, shape)
               : MP_FAIL(INTERNAL, "the activation has no function");
}
