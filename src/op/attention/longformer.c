/* longformer.c - LongformerAttention of com.microsoft: tokens see a window, and some see all and
 * are seen by all. Q, K and V of these are projections of their own, made of all tokens: which are
 * flagged, and whether any is, only the device knows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/longformer_steps.h"
#include "op/core/families.h"

static const mp_longformer_inputs inputs = {
    .weights = 1, .bias = 2, .mask = 3, .global_weights = 4, .global_bias = 5, .flags = 6};

/* `sides` of the columns of a projection. */
static mp_projection projection(const mp_longformer *x, int64_t sides, mp_ref weights,
                                mp_ref bias) {
    return (mp_projection){.tokens = x->tokens,
                           .in = x->width,
                           .out = sides * x->width,
                           .x = MP_IN(0),
                           .weights = weights,
                           .bias = bias};
}

/* Three matrices one behind the other; the biases of K and V are behind each other, too. */
static mp_status project_apart(mp_planner *p, const mp_longformer *x, mp_ref weights,
                               const mp_ref bias[2], mp_dense *own) {
    mp_heads *const sides[3] = {&own->q, &own->k, &own->v};
    const uint64_t size = mp_dtype_size(own->type);
    const uint64_t row = (uint64_t)x->width * size;
    for (uint64_t i = 0; i < 3; i++) {
        const mp_projection side =
            projection(x, 1, mp_ref_at(weights, i * (uint64_t)x->width * row),
                       i == 0 ? bias[0] : mp_ref_at(bias[1], (i - 1) * row));
        mp_ref at = MP_NOWHERE;
        MP_TRY(mp_dense_project(p, own->type, &side, &at));
        *sides[i] = mp_heads_last(at, own->heads, own->rows, own->head);
    }
    return MP_OK;
}

static mp_status project(mp_planner *p, const mp_longformer *x, bool global, mp_dense *own) {
    const mp_ref weights = MP_IN(global ? inputs.global_weights : inputs.weights);
    const mp_ref bias = MP_IN(inputs.bias);
    const uint64_t row = (uint64_t)x->width * mp_dtype_size(x->d.type);
    mp_ref at = MP_NOWHERE;
    *own = x->d;
    if (x->apart) {
        const mp_ref biases[2][2] = {{bias, mp_ref_at(bias, row)},
                                     {MP_IN(inputs.global_bias), mp_ref_at(bias, 3 * row)}};
        return project_apart(p, x, weights, biases[global], own);
    }
    const mp_projection all = projection(x, 3, weights, global ? MP_IN(inputs.global_bias) : bias);
    MP_TRY(mp_dense_project(p, own->type, &all, &at));
    mp_dense_place(own, at);
    return MP_OK;
}

static mp_status plan_longformer(mp_planner *p) {
    mp_longformer x;
    mp_dense own[2];
    MP_TRY(mp_longformer_read(p, &inputs, true, &x));
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &p->in[0].shape));
    x.d.type = p->in[0].type;
    MP_TRY(project(p, &x, false, &own[0]));
    MP_TRY(project(p, &x, true, &own[1]));
    return mp_longformer_attend(p, &x, &inputs, own, MP_OUT(0));
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"num_heads", MP_ATTR_INT}, {"window", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "LongformerAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"G", MP_BIT(MP_I32)}},
     .attrs = attrs,
     .plan = plan_longformer},
};

const mp_op_family mp__family_longformer = {"longformer", ops, MP_COUNT_OF(ops)};
