/* moe.c - MoE: a mixture of experts whose weights are of the input's type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/moe_steps.h"

enum { X, SCORES, FC1, BIAS1, FC2, BIAS2, FC3, BIAS3 };

static mp_ref optional(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* Weights [experts][n][k]. Older models swap the last two dimensions, but not what lies there. */
static mp_status read_matrix(const mp_planner *p, const mp_moe *m, int i, int64_t n, int64_t k,
                             mp_expert_matrix *out) {
    const mp_shape *shape = &p->in[i].shape;
    const bool fits =
        shape->rank == 3 && shape->dim[0] == m->experts &&
        ((shape->dim[1] == n && shape->dim[2] == k) || (shape->dim[1] == k && shape->dim[2] == n));
    char text[MP_SHAPE_TEXT];
    if (!fits) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "weights of shape %s in input %d; %lld experts of %lld x %lld are wanted",
                       mp_shape_text(shape, text), i, (long long)m->experts, (long long)n,
                       (long long)k);
    }
    *out =
        (mp_expert_matrix){.kind = K_NBITS_PLAIN,
                           .packed = {.type = m->type, .weight = MP_IN(i), .w = {.n = n, .k = k}},
                           .bias = optional(p, i + 1)};
    return mp_packed_count(p, i + 1, "biases", m->experts, n);
}

static mp_status read_inter(const mp_planner *p, mp_moe *m) {
    const mp_shape *shape = &p->in[FC2].shape;
    char text[MP_SHAPE_TEXT];
    const int64_t count = mp_shape_count(shape);
    m->inter = shape->rank == 3 && m->hidden > 0 ? count / m->experts / m->hidden : 0;
    return m->inter > 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "fc2_experts_weights of shape %s for %lld experts of %lld columns",
                         mp_shape_text(shape, text), (long long)m->experts, (long long)m->hidden);
}

static mp_status plan(mp_planner *p) {
    mp_moe m;
    MP_TRY(mp_moe_read(p, &m));
    MP_TRY(mp_moe_gate(p, &m, FC3));
    MP_TRY(read_inter(p, &m));
    MP_TRY(read_matrix(p, &m, FC1, mp_moe_wide(&m), m.hidden, &m.first));
    MP_TRY(read_matrix(p, &m, FC2, m.hidden, m.inter, &m.second));
    if (m.gated) {
        MP_TRY(read_matrix(p, &m, FC3, m.inter, m.hidden, &m.third));
    }
    return mp_plan_moe(p, &m);
}

static const mp_attr_def attrs[] = {{"activation_alpha", MP_ATTR_FLOAT},
                                    {"activation_beta", MP_ATTR_FLOAT},
                                    {"activation_type", MP_ATTR_STRING},
                                    {"k", MP_ATTR_INT},
                                    {"normalize_routing_weights", MP_ATTR_INT},
                                    {"swiglu_fusion", MP_ATTR_INT},
                                    {"swiglu_limit", MP_ATTR_FLOAT},
                                    {"use_sparse_mixer", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "MoE",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan},
};

const mp_op_family mp__family_moe = {"moe", ops, MP_COUNT_OF(ops)};
