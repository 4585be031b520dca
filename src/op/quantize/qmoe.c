/* qmoe.c - QMoE: a mixture of experts with quantised weights: integers of 2, 4 or 8 bits, float8 in
 * square blocks or with a scale for each expert, float4 in the forms MXFP4 and NVFP4.
 *
 * What else weights_prepacked may say is the layout of another provider's kernels. Its shapes are
 * others unless all matrices are square: then the model has to say that they are as the schema has
 * them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/moe_steps.h"

enum { X, SCORES, MIX = 14, ACTIVATIONS = 17, INPUTS = 21 };

/* The inputs of a matrix. */
typedef struct place {
    const char *name, *bits; /* of the attribute */
    int weight, scale, bias, zero, factor;
} place;

static const place places[] = {{"fc1", "fc1_expert_weight_bits", 2, 3, 4, 11, 15},
                               {"fc2", "fc2_expert_weight_bits", 5, 6, 7, 12, 16},
                               {"fc3", "fc3_expert_weight_bits", 8, 9, 10, 13, -1}};

/* What weights are. */
typedef struct form {
    const char *name;
    mp_dtype stored; /* of the weights' tensor */
    mp_dtype narrow; /* what they are codes of; MP_NONE: integers */
    mp_dtypes scales;
    int64_t block; /* 0: as the model says */
    bool factor;   /* of each expert; of float8 only without blocks */
} form;

enum { WIDE = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16) };

static const form forms[] = {
    {"int", MP_U8, MP_NONE, WIDE, 0, false},
    {"fp8", MP_F8E4M3FN, MP_F8E4M3FN, WIDE, 0, true},
    {"fp4", MP_U8, MP_F4E2M1, MP_BIT(MP_F8E8M0), 32, true},
    {"nvfp4", MP_U8, MP_F4E2M1, MP_BIT(MP_F8E4M3FN), 16, true},
};

/* ---- what is asked ---- */

static mp_status read_form(const mp_node *node, const form **out) {
    const char *name = mp_node_string(node, "quant_type", "int");
    for (size_t i = 0; i < MP_COUNT_OF(forms); i++) {
        if (strcmp(name, forms[i].name) == 0) {
            *out = &forms[i];
            return MP_OK;
        }
    }
    return MP_FAIL(UNSUPPORTED, "quant_type is '%s'; int, fp8, fp4 and nvfp4 are supported", name);
}

static mp_status accept(const mp_planner *p) {
    const form *f = NULL;
    if (mp_node_int(p->node, "weights_prepacked", -1) > 0) {
        return MP_FAIL(UNSUPPORTED, "weights packed for another kernel; export the model with "
                                    "weights_prepacked = 0");
    }
    return read_form(p->node, &f);
}

static mp_ref optional(const mp_planner *p, int i) {
    return i >= 0 && mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static bool given(mp_ref ref) {
    return ref.place != MP_PLACE_NONE;
}

static mp_status read_bits(const mp_planner *p, const form *f, const place *at, int64_t *bits) {
    const int64_t all = mp_node_int(p->node, "expert_weight_bits", 4);
    *bits = f->narrow != MP_NONE ? (int64_t)mp_dtype_bits(f->narrow)
                                 : mp_node_int(p->node, at->bits, all);
    return *bits == 2 || *bits == 4 || *bits == 8
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s has weights of %lld bits; 2, 4 and 8 are possible",
                         at->name, (long long)*bits);
}

static mp_status check_weights(const mp_planner *p, const mp_moe *m, const form *f, const place *at,
                               const k_nbits *w) {
    const mp_tensor *weight = mp_plan_in(p, at->weight);
    char text[MP_SHAPE_TEXT];
    if (weight == NULL || weight->type != f->stored) {
        return MP_FAIL(INVALID_ARGUMENT, "%s has weights of %s, quant_type '%s' those of %s",
                       at->name, weight != NULL ? mp_dtype_name(weight->type) : "no type", f->name,
                       mp_dtype_name(f->stored));
    }
    const mp_shape *shape = &weight->shape;
    if (shape->rank == 3 && shape->dim[0] == m->experts && shape->dim[1] == w->n &&
        shape->dim[2] == w->weight_row && w->k * w->bits % 8 == 0) {
        return MP_OK;
    }
    return MP_FAIL(
        INVALID_ARGUMENT,
        "%s has weights of shape %s; %lld experts of %lld rows of %lld bytes are wanted, "
        "and no layout of another provider's",
        at->name, mp_shape_text(shape, text), (long long)m->experts, (long long)w->n,
        (long long)w->weight_row);
}

/* ---- scales and zero points ---- */

static mp_status read_scales(const mp_planner *p, const mp_moe *m, const form *f, const place *at,
                             int64_t block, mp_expert_matrix *out) {
    k_nbits *w = &out->packed.w;
    const bool square = f->narrow == MP_F8E4M3FN && block > 0;
    const bool alone = f->narrow == MP_F8E4M3FN && block <= 0; /* a factor and nothing else */
    const mp_tensor *scale = mp_plan_in(p, at->scale);
    if (f->factor && !square) {
        out->packed.factor = optional(p, at->factor);
        if (!given(out->packed.factor)) {
            return MP_FAIL(INVALID_ARGUMENT, "%s has no global scale; quant_type '%s' needs one",
                           at->name, f->name);
        }
        MP_TRY(mp_packed_count(p, at->factor, "global scales", m->experts, 1));
    }
    if (alone) { /* the factor is read in the place of scales, one for all of a matrix */
        out->packed.scale = out->packed.factor;
        out->packed.factor = MP_NOWHERE;
        w->side = w->n;
        w->side_rows = 1;
        return MP_OK;
    }
    if (scale == NULL || (MP_BIT(scale->type) & f->scales) == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%s has scales of %s, which is none for quant_type '%s'",
                       at->name, scale != NULL ? mp_dtype_name(scale->type) : "no type", f->name);
    }
    w->scale_type = mp_scale_word(scale->type);
    w->side = square ? block : 1;
    w->side_rows = square ? MP_CEIL_DIV(w->n, block) : w->n;
    out->packed.scale = MP_IN(at->scale);
    return mp_packed_count(p, at->scale, "scales", m->experts * w->side_rows, w->blocks);
}

static mp_status read_zeros(const mp_planner *p, const mp_moe *m, const form *f, const place *at,
                            bool blocked, mp_expert_matrix *out) {
    k_nbits *w = &out->packed.w;
    out->packed.zero = optional(p, at->zero);
    if (!given(out->packed.zero)) {
        return MP_OK;
    }
    if (f->narrow != MP_NONE || p->in[at->zero].type != MP_U8) {
        return MP_FAIL(INVALID_ARGUMENT, "%s has zero points of %s with quant_type '%s'", at->name,
                       mp_dtype_name(p->in[at->zero].type), f->name);
    }
    w->zero_packed = 1;
    w->zero_across = !blocked;
    w->zero_row = ((blocked ? w->blocks : w->n) * w->bits + 7) / 8;
    return mp_packed_count(p, at->zero, "zero points", blocked ? m->experts * w->n : m->experts,
                           w->zero_row);
}

static mp_status read_matrix(mp_planner *p, const mp_moe *m, const form *f, const place *at,
                             int64_t n, int64_t k, mp_expert_matrix *out) {
    const int64_t said = mp_node_int(p->node, "block_size", -1);
    const int64_t block = f->block != 0 ? f->block : said;
    int64_t bits = 0;
    MP_TRY(read_bits(p, f, at, &bits));
    *out = (mp_expert_matrix){
        .kind = f->narrow != MP_NONE ? K_NBITS_CODE : K_NBITS_INTEGER,
        .packed = {.type = m->type,
                   .weight = MP_IN(at->weight),
                   .w = {.n = n, .k = k, .bits = (int32_t)bits, .middle = 1 << (bits - 1)}},
        .bias = optional(p, at->bias)};
    k_nbits *w = &out->packed.w;
    w->weight_row = k / 8 * bits + k % 8 * bits / 8;
    MP_TRY(check_weights(p, m, f, at, w));
    MP_TRY(mp_packed_block(w, block > 0 ? block : k));
    MP_TRY(read_scales(p, m, f, at, block, out));
    MP_TRY(read_zeros(p, m, f, at, block > 0, out));
    if (f->narrow != MP_NONE) {
        MP_TRY(mp_packed_codes_of(p, &out->packed, f->narrow));
    }
    return mp_packed_count(p, at->bias, "biases", m->experts, n);
}

/* ---- the plan ---- */

static mp_status read_inter(const mp_planner *p, const form *f, mp_moe *m) {
    const mp_tensor *weight = mp_plan_in(p, places[1].weight);
    char text[MP_SHAPE_TEXT];
    int64_t bits = 0, all = 0;
    MP_TRY(read_bits(p, f, &places[1], &bits));
    if (weight == NULL || weight->shape.rank != 3 ||
        __builtin_mul_overflow(weight->shape.dim[2], 8 / bits, &all) || all < 1 || m->hidden < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "fc2 has weights of shape %s for %lld columns",
                       weight != NULL ? mp_shape_text(&weight->shape, text) : "(none)",
                       (long long)m->hidden);
    }
    m->inter = all;
    return MP_OK;
}

static mp_status check_layout(const mp_planner *p, const form *f, const mp_moe *m) {
    const bool square = m->hidden == m->inter && mp_moe_wide(m) == m->hidden;
    if (f->narrow == MP_NONE && square && mp_node_int(p->node, "weights_prepacked", -1) != 0) {
        return MP_FAIL(UNSUPPORTED, "nothing tells whether these square weights are packed for "
                                    "another kernel; export the model with weights_prepacked = 0");
    }
    for (int i = ACTIVATIONS; i < INPUTS; i++) {
        if (mp_plan_in(p, i) != NULL) {
            return MP_FAIL(UNSUPPORTED, "input %d is a scale for quantised activations", i);
        }
    }
    return MP_OK;
}

static mp_status plan(mp_planner *p) {
    const form *f = NULL;
    const mp_tensor *mix = mp_plan_in(p, MIX);
    mp_moe m;
    MP_TRY(accept(p));
    MP_TRY(read_form(p->node, &f));
    MP_TRY(mp_moe_read(p, &m));
    MP_TRY(mp_moe_gate(p, &m, places[2].weight));
    MP_TRY(read_inter(p, f, &m));
    MP_TRY(check_layout(p, f, &m));
    if (mix != NULL && !mp_shape_equal(&mix->shape, &p->in[SCORES].shape)) {
        return MP_FAIL(INVALID_ARGUMENT, "router_weights are not of the shape of router_probs");
    }
    m.mix = mix != NULL ? MP_IN(MIX) : MP_NOWHERE;
    MP_TRY(read_matrix(p, &m, f, &places[0], mp_moe_wide(&m), m.hidden, &m.first));
    MP_TRY(read_matrix(p, &m, f, &places[1], m.hidden, m.inter, &m.second));
    if (m.gated) {
        MP_TRY(read_matrix(p, &m, f, &places[2], m.inter, m.hidden, &m.third));
    }
    return mp_plan_moe(p, &m);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"activation_alpha", MP_ATTR_FLOAT},
                                    {"activation_beta", MP_ATTR_FLOAT},
                                    {"activation_type", MP_ATTR_STRING},
                                    {"block_size", MP_ATTR_INT},
                                    {"expert_weight_bits", MP_ATTR_INT},
                                    {"fc1_expert_weight_bits", MP_ATTR_INT},
                                    {"fc2_expert_weight_bits", MP_ATTR_INT},
                                    {"fc3_expert_weight_bits", MP_ATTR_INT},
                                    {"k", MP_ATTR_INT},
                                    {"normalize_routing_weights", MP_ATTR_INT},
                                    {"quant_type", MP_ATTR_STRING},
                                    {"swiglu_fusion", MP_ATTR_INT},
                                    {"swiglu_limit", MP_ATTR_FLOAT},
                                    {"use_sparse_mixer", MP_ATTR_INT},
                                    {"weights_prepacked", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "QMoE",
     .since = 1,
     .until = 1,
     .types = {{"T", WIDE},
               {"T1", MP_BIT(MP_U8) | MP_BIT(MP_F8E4M3FN)},
               {"T2", WIDE | MP_BIT(MP_F8E8M0) | MP_BIT(MP_F8E4M3FN)},
               {"T4", MP_BIT(MP_F32)}},
     .attrs = attrs,
     .plan = plan,
     .accept = accept},
};

const mp_op_family mp__family_qmoe = {"qmoe", ops, MP_COUNT_OF(ops)};
