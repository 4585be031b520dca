/* matmul_nbits.c - MatMulNBits: a product with weights of 2, 4 or 8 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/pointwise/gated_steps.h"
#include "op/quantize/nbits_steps.h"

enum { A, B, SCALES, ZEROS, GROUPS, BIAS, BEFORE };

/* ---- what is asked ---- */

static mp_status read_sizes(const mp_planner *p, k_nbits *w) {
    const mp_shape *a = &p->in[A].shape;
    char text[MP_SHAPE_TEXT];
    w->k = mp_node_int(p->node, "K", 0);
    w->n = mp_node_int(p->node, "N", 0);
    if (w->k < 1 || w->n < 1 || a->rank < 1 || a->dim[a->rank - 1] != w->k) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "A of shape %s does not go with weights for K = %lld and N = %lld",
                       mp_shape_text(a, text), (long long)w->k, (long long)w->n);
    }
    if (mp_node_int(p->node, "weight_prepacked", 0) != 0) {
        return MP_FAIL(UNSUPPORTED, "weights packed for another kernel; export the model with "
                                    "weight_prepacked = 0");
    }
    return mp_packed_integers(w, p->in[A].type, mp_node_int(p->node, "bits", 4),
                              mp_node_int(p->node, "block_size", 0));
}

static mp_status read_inputs(const mp_planner *p, k_nbits *w) {
    const mp_tensor *zero = mp_plan_in(p, ZEROS);
    MP_TRY(read_sizes(p, w));
    w->zero_packed = zero != NULL && zero->type == MP_U8;
    if (zero != NULL && !w->zero_packed && zero->type != p->in[A].type) {
        return MP_FAIL(UNSUPPORTED,
                       "zero points of %s for A of %s; they are packed as uint8 or of "
                       "the same type",
                       mp_dtype_name(zero->type), mp_dtype_name(p->in[A].type));
    }
    MP_TRY(mp_packed_count(p, B, "weights", w->n, w->weight_row));
    MP_TRY(mp_packed_count(p, SCALES, "scales", w->n, w->blocks));
    MP_TRY(
        mp_packed_count(p, ZEROS, "zero points", w->n, w->zero_packed ? w->zero_row : w->blocks));
    MP_TRY(mp_packed_count(p, BIAS, "values of the bias", w->n, 1));
    const mp_tensor *group = mp_plan_in(p, GROUPS);
    if (group != NULL && mp_shape_count(&group->shape) < w->k) {
        return MP_FAIL(INVALID_ARGUMENT, "g_idx has %lld values for K = %lld",
                       (long long)mp_shape_count(&group->shape), (long long)w->k);
    }
    return MP_OK;
}

/* ---- the work ---- */

static mp_ref ref_of(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* `behind`: whether the result's left half gates its right half. */
static mp_status read(mp_planner *p, bool behind, mp_packed *packed, mp_shape *shape, int64_t *m) {
    *packed = (mp_packed){.type = p->in[A].type,
                          .weight = MP_IN(B),
                          .scale = MP_IN(SCALES),
                          .zero = ref_of(p, ZEROS),
                          .group = ref_of(p, GROUPS)};
    MP_TRY(read_inputs(p, &packed->w));
    *m = mp_shape_span(shape, 0, shape->rank - 1);
    shape->dim[shape->rank - 1] = packed->w.n;
    packed->gated = behind;
    if (behind) {
        const mp_shape whole = *shape;
        mp_gate gate;
        MP_TRY(mp_gate_read(p, &gate));
        packed->gate = gate.kind;
        packed->alpha = gate.alpha;
        MP_TRY(mp_gated_shape(&whole, shape));
    }
    return mp_plan_output(p, 0, packed->type, shape);
}

static mp_status plan_given(mp_planner *p, bool behind) {
    mp_shape shape = p->in[A].shape;
    mp_packed packed;
    int64_t m = 0;
    MP_TRY(read(p, behind, &packed, &shape, &m));
    return m == 0 ? MP_OK
                  : mp_plan_packed_product(p, &packed, MP_IN(A), m, ref_of(p, BIAS), MP_OUT(0));
}

static mp_status plan(mp_planner *p) {
    return plan_given(p, false);
}

static mp_status plan_behind(mp_planner *p) {
    return plan_given(p, true);
}

static mp_status plan_made(mp_planner *p, const mp_before *before, bool behind) {
    mp_tensor in[BEFORE];
    mp_planner q = *p; /* as if what is multiplied were an input */
    mp_shape shape = before->made.shape;
    mp_packed packed;
    int64_t m = 0;
    q.in = in;
    q.in_count = MP_MIN(p->in_count, BEFORE);
    memcpy(in, p->in, (size_t)q.in_count * sizeof *in);
    in[A] = before->made;
    MP_TRY(read(&q, behind, &packed, &shape, &m));
    return m == 0 ? MP_OK : mp_plan_made_packed(p, &packed, before, m, ref_of(&q, BIAS), MP_OUT(0));
}

/* Two inputs more: skip, or none, and the scale of the rows. */
static mp_status plan_normed(mp_planner *p) {
    mp_before before;
    MP_TRY(mp_before_read(p, BEFORE, &before));
    return plan_made(p, &before, false);
}

static mp_status plan_normed_behind(mp_planner *p) {
    mp_before before;
    MP_TRY(mp_before_read(p, BEFORE, &before));
    return plan_made(p, &before, true);
}

static mp_status plan_gated(mp_planner *p) {
    mp_before before;
    MP_TRY(mp_before_read_gate(p, &before));
    return plan_made(p, &before, false);
}

static const mp_attr_def attrs[] = {{"K", MP_ATTR_INT},
                                    {"N", MP_ATTR_INT},
                                    {"bits", MP_ATTR_INT},
                                    {"block_size", MP_ATTR_INT},
                                    {"weight_prepacked", MP_ATTR_INT},
                                    {NULL, 0}};

enum {
    FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    BYTE = MP_BIT(MP_U8),
};

static const mp_attr_def normed_attrs[] = {{"K", MP_ATTR_INT},
                                           {"N", MP_ATTR_INT},
                                           {"bits", MP_ATTR_INT},
                                           {"block_size", MP_ATTR_INT},
                                           {"epsilon", MP_ATTR_FLOAT},
                                           {"weight_prepacked", MP_ATTR_INT},
                                           {NULL, 0}};

static const mp_attr_def gated_attrs[] = {{"K", MP_ATTR_INT},
                                          {"N", MP_ATTR_INT},
                                          {"alpha", MP_ATTR_FLOAT},
                                          {"bits", MP_ATTR_INT},
                                          {"block_size", MP_ATTR_INT},
                                          {"gate", MP_ATTR_STRING},
                                          {"weight_prepacked", MP_ATTR_INT},
                                          {NULL, 0}};

static const mp_attr_def normed_gated_attrs[] = {{"K", MP_ATTR_INT},
                                                 {"N", MP_ATTR_INT},
                                                 {"alpha", MP_ATTR_FLOAT},
                                                 {"bits", MP_ATTR_INT},
                                                 {"block_size", MP_ATTR_INT},
                                                 {"epsilon", MP_ATTR_FLOAT},
                                                 {"gate", MP_ATTR_STRING},
                                                 {"weight_prepacked", MP_ATTR_INT},
                                                 {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "MatMulNBits",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = attrs,
     .plan = plan},
    {.domain = MP_OWN_DOMAIN,
     .name = "NormMatMulNBits",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = normed_attrs,
     .plan = plan_normed},
    {.domain = MP_OWN_DOMAIN,
     .name = "GatedMatMulNBits",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = gated_attrs,
     .plan = plan_gated},
    {.domain = MP_OWN_DOMAIN,
     .name = "MatMulNBitsGated",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = gated_attrs,
     .plan = plan_behind},
    {.domain = MP_OWN_DOMAIN,
     .name = "NormMatMulNBitsGated",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = normed_gated_attrs,
     .plan = plan_normed_behind},
};

const mp_op_family mp__family_matmul_nbits = {"matmul_nbits", ops, MP_COUNT_OF(ops)};
