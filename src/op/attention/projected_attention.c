/* projected_attention.c - Attention and DecoderMaskedSelfAttention of com.microsoft: Q, K and V are
 * projections of one input, by weights side by side; keys and values of the past are one tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/core/families.h"

enum {
    IN_X,
    IN_WEIGHTS,
    IN_BIAS,
    IN_MASK,
    IN_PAST,
    IN_SCORE_BIAS,
    IN_PAST_LENGTH,
    IN_BEAM_WIDTH, /* of DecoderMaskedSelfAttention */
    IN_BEAMS
};
enum { OUT_Y, OUT_PRESENT };

/* One token after the other, with keys in packs and beams. */
static const bool decoder = true;

static bool is_decoder(const mp_planner *p) {
    return p->node->op->detail == &decoder;
}

static mp_status read_sizes(const mp_planner *p, mp_dense *d, mp_projection *x) {
    const int operands[3] = {IN_X, IN_WEIGHTS, IN_BIAS};
    MP_TRY(mp_dense_operands(p, operands, 3, x));
    *d = (mp_dense){.type = p->in[IN_X].type, .key_packs = is_decoder(p)};
    return mp_dense_read(p, IN_X, x->out, d);
}

static mp_status accept_decoder(const mp_planner *p) {
    return mp_node_int(p->node, "past_present_share_buffer", 0) != 0
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "past_present_share_buffer must be 1");
}

static mp_status plan_projected(mp_planner *p) {
    mp_dense d;
    mp_projection x;
    mp_ref projected = MP_NOWHERE;
    if (is_decoder(p)) {
        MP_TRY(accept_decoder(p));
    }
    MP_TRY(read_sizes(p, &d, &x));
    const mp_shape y = {.rank = 3, .dim = {d.batch, d.rows, d.heads * d.value}};
    MP_TRY(mp_plan_output(p, OUT_Y, d.type, &y));
    MP_TRY(mp_dense_stacked(p, IN_PAST, OUT_PRESENT, IN_PAST_LENGTH, &d));
    if (is_decoder(p)) {
        MP_TRY(mp_dense_beams(p, IN_BEAMS, IN_BEAM_WIDTH, &d));
    }
    mp_attention a = {.debug_mode = MP_DEBUG_NONE};
    mp_dense_rule(p, &d, &a);
    MP_TRY(mp_dense_mask(p, IN_MASK, MP_DENSE_CLASSIC, &d, &a));
    MP_TRY(mp_dense_score_bias(p, IN_SCORE_BIAS, &a));
    MP_TRY(mp_dense_project(p, d.type, &x, &projected));
    return mp_dense_attend_projected(p, &d, projected, &a);
}

/* ---- the rows ---- */

static const mp_attr_def attrs[] = {{"do_rotary", MP_ATTR_INT},
                                    {"mask_filter_value", MP_ATTR_FLOAT},
                                    {"num_heads", MP_ATTR_INT},
                                    {"past_present_share_buffer", MP_ATTR_INT},
                                    {"qkv_hidden_sizes", MP_ATTR_INTS},
                                    {"rotary_embedding_dim", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"unidirectional", MP_ATTR_INT},
                                    {NULL, 0}};
static const mp_attr_def decoder_attrs[] = {
    {"do_rotary", MP_ATTR_INT}, {"mask_filter_value", MP_ATTR_FLOAT},
    {"num_heads", MP_ATTR_INT}, {"past_present_share_buffer", MP_ATTR_INT},
    {"scale", MP_ATTR_FLOAT},   {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "Attention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}, {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_PAST_LENGTH,
     .attrs = attrs,
     .plan = plan_projected},
    {.domain = "com.microsoft",
     .name = "DecoderMaskedSelfAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_PAST_LENGTH | 1u << IN_BEAM_WIDTH,
     .attrs = decoder_attrs,
     .accept = accept_decoder,
     .plan = plan_projected,
     .detail = &decoder},
};

const mp_op_family mp__family_projected_attention = {"projected_attention", ops, MP_COUNT_OF(ops)};
