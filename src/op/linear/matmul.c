/* matmul.c - MatMul, with a bias or without, Gemm and FusedGemm.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/linear/few_rows.h"
#include "op/linear/product.h"
#include "op/linear/product_steps.h"
#include "op/linear/rows_wgmma.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/activation_steps.h"
#include "op/pointwise/pointwise_steps.h"

#include <string.h>

/* ---- MatMul ---- */

static mp_gemm gemm_for(const mp_planner *p, mp_dtype dtype, int64_t m, int64_t n, int64_t k) {
    return (mp_gemm){.type = dtype,
                     .tf32 = p->node->options.tf32,
                     .m = m,
                     .n = n,
                     .k = k,
                     .lda = k,
                     .ldb = n,
                     .ldc = n,
                     .batch = 1,
                     .alpha = 1,
                     .align = p->align};
}

static mp_status plan_batches(mp_planner *p, mp_dtype dtype, const mp_product *x) {
    const int64_t matrix[2] = {x->m * x->k, x->k * x->n};
    int64_t stride[2][MP_RANK_MAX];
    mp_space space;
    mp_shape_broadcast_strides(&x->a_batch, &x->batch, stride[0]);
    mp_shape_broadcast_strides(&x->b_batch, &x->batch, stride[1]);
    for (int d = 0; d < x->batch.rank; d++) {
        stride[0][d] *= matrix[0];
        stride[1][d] *= matrix[1];
    }
    mp_space_make(&x->batch, stride, 2, &space);
    const mp_gemm gemm = gemm_for(p, dtype, x->m, x->n, x->k);
    return mp_plan_products(p, &gemm, &space);
}

/* With the activation on the way to memory where the device has that; else it is a step behind. */
static mp_status plan_active(mp_planner *p, const mp_gemm *gemm, const mp_ref *operands,
                             const mp_activation_choice *activation) {
    mp_gemm active = *gemm;
    active.activation = activation->kind;
    active.activation_alpha = activation->a;
    active.activation_beta = activation->b;
    if (active.activation != MP_ACTIVATION_NONE) {
        const mp_status status = mp_plan_rows(p, &active, operands);
        if (status != MP_UNSUPPORTED) {
            return status;
        }
    }
    MP_TRY(mp_plan_rows(p, gemm, operands));
    return mp_plan_activation(p, activation, gemm->type, operands[MP_GEMM_C], gemm->m * gemm->n);
}

/* A constant B [k, n] that is wanted turned comes as [n, k]. */
static mp_status turn_b(mp_planner *p, int i, bool is_turned) {
    const mp_tensor *b = &p->in[i];
    if (i != 1 || is_turned || b->shape.rank != 2 ||
        !mp_wants_turned(p, b->type, b->shape.dim[0], b->shape.dim[1])) {
        return MP_OK;
    }
    const mp_shape turned = {.rank = 2, .dim = {b->shape.dim[1], b->shape.dim[0]}};
    const mp_strided from = {.ref = MP_IN(i), .stride = {1, b->shape.dim[1]}};
    const mp_strided to = {.ref = MP_OUT(0), .stride = {b->shape.dim[0], 1}};
    MP_TRY(mp_plan_output(p, 0, b->type, &b->shape));
    return mp_plan_strided_copy(p, &turned, mp_dtype_size(b->type), &from, &to);
}

static mp_status prepare_matmul(mp_planner *p, int i) {
    return turn_b(p, i, false);
}

static mp_status prepare_gemm(mp_planner *p, int i) {
    return turn_b(p, i, mp_node_int(p->node, "transB", 0) != 0);
}

static void take_prepared(const mp_planner *p, mp_gemm *gemm) {
    if (mp_node_prepared(p->node, 1)) {
        gemm->trans_b = true;
        gemm->ldb = gemm->k;
    }
}

/* One B for all: the rows of every A are one matrix. `bias`, or MP_NOWHERE, is added to each. */
static mp_status plan_one_b(mp_planner *p, mp_dtype dtype, const mp_product *x, mp_ref bias,
                            const mp_activation_choice *activation) {
    mp_gemm gemm = gemm_for(p, dtype, mp_shape_count(&x->batch) * x->m, x->n, x->k);
    gemm.bias = bias.place != MP_PLACE_NONE;
    take_prepared(p, &gemm);
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = MP_IN(0),
                                               [MP_GEMM_B] = MP_IN(1),
                                               [MP_GEMM_C] = MP_OUT(0),
                                               [MP_GEMM_BIAS] = bias};
    return plan_active(p, &gemm, operands, activation);
}

/* The numbers of an activation, as FusedGemm has them. */
static mp_status read_activation(const mp_planner *p, mp_activation_choice *out) {
    static const char *const names[] = {"activation_alpha", "activation_beta"};
    float params[MP_COUNT_OF(names)];
    size_t count = 0;
    while (count < MP_COUNT_OF(names) && mp_node_attr(p->node, names[count]) != NULL) {
        params[count] = mp_node_float(p->node, names[count], 0);
        count++;
    }
    return mp_activation_read(mp_node_string(p->node, "activation", NULL), params, count, out);
}

/* x, B, a bias or none. */
static mp_status plan_matmul_bias(mp_planner *p) {
    const mp_dtype dtype = p->in[0].type;
    const mp_tensor *bias = mp_plan_in(p, 2);
    mp_activation_choice activation;
    mp_product x;
    MP_TRY(read_activation(p, &activation));
    MP_TRY(mp_product_read(&p->in[0].shape, &p->in[1].shape, &x));
    if (mp_shape_count(&x.b_batch) != 1 || (bias != NULL && mp_shape_count(&bias->shape) != x.n)) {
        char matrix[MP_SHAPE_TEXT];
        char row[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "B of shape %s and a bias of shape %s: B must be one matrix, the bias %lld "
                       "numbers",
                       mp_shape_text(&p->in[1].shape, matrix),
                       bias != NULL ? mp_shape_text(&bias->shape, row) : "(none)", (long long)x.n);
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &x.out));
    const mp_ref row = bias != NULL ? MP_IN(2) : MP_NOWHERE;
    return mp_shape_count(&x.out) > 0 ? plan_one_b(p, dtype, &x, row, &activation) : MP_OK;
}

enum { MADE_BIAS = 2, MADE_BEFORE };

static mp_status plan_made_matmul(mp_planner *p, const mp_before *before) {
    const mp_tensor *bias = mp_plan_in(p, MADE_BIAS);
    mp_product x;
    MP_TRY(mp_product_read(&before->made.shape, &p->in[1].shape, &x));
    if (mp_shape_count(&x.b_batch) != 1 || (bias != NULL && mp_shape_count(&bias->shape) != x.n)) {
        char matrix[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "B of shape %s is not one matrix, or has another bias",
                       mp_shape_text(&p->in[1].shape, matrix));
    }
    MP_TRY(mp_plan_output(p, 0, before->made.type, &x.out));
    mp_gemm gemm = gemm_for(p, before->made.type, mp_shape_count(&x.batch) * x.m, x.n, x.k);
    gemm.bias = bias != NULL;
    if (x.n == 0 || x.k == 0) {
        return MP_FAIL(UNSUPPORTED, "a matrix of nothing");
    }
    if (mp_shape_count(&x.out) == 0) {
        return MP_OK;
    }
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_B] = MP_IN(1),
                                               [MP_GEMM_C] = MP_OUT(0),
                                               [MP_GEMM_BIAS] =
                                                   bias != NULL ? MP_IN(MADE_BIAS) : MP_NOWHERE};
    return mp_plan_made_rows(p, &gemm, operands, before);
}

/* x, B, a bias or none, skip or none, the scale of the rows. */
static mp_status plan_norm_matmul(mp_planner *p) {
    mp_before before;
    MP_TRY(mp_before_read(p, MADE_BEFORE, &before));
    return plan_made_matmul(p, &before);
}

/* x, B, a bias or none. */
static mp_status plan_gated_matmul(mp_planner *p) {
    mp_before before;
    MP_TRY(mp_before_read_gate(p, &before));
    return plan_made_matmul(p, &before);
}

static mp_status plan_matmul(mp_planner *p) {
    static const mp_activation_choice none = {.word = NULL};
    const mp_dtype dtype = p->in[0].type;
    mp_product x;
    MP_TRY(mp_product_read(&p->in[0].shape, &p->in[1].shape, &x));
    MP_TRY(mp_plan_output(p, 0, dtype, &x.out));
    if (mp_shape_count(&x.out) == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&x.b_batch) == 1) {
        return plan_one_b(p, dtype, &x, MP_NOWHERE, &none);
    }
    return plan_batches(p, dtype, &x);
}

/* ---- Gemm ---- */

static mp_status check_gemm(const mp_planner *p, bool trans_a, bool trans_b, mp_gemm *gemm) {
    const mp_shape *a = &p->in[0].shape;
    const mp_shape *b = &p->in[1].shape;
    char left[MP_SHAPE_TEXT];
    char right[MP_SHAPE_TEXT];
    if (a->rank != 2 || b->rank != 2 || a->dim[trans_a ? 0 : 1] != b->dim[trans_b ? 1 : 0]) {
        return MP_FAIL(INVALID_ARGUMENT, "A of shape %s and B of shape %s cannot be multiplied",
                       mp_shape_text(a, left), mp_shape_text(b, right));
    }
    *gemm = gemm_for(p, p->in[0].type, a->dim[trans_a ? 1 : 0], b->dim[trans_b ? 0 : 1],
                     a->dim[trans_a ? 0 : 1]);
    gemm->trans_a = trans_a;
    gemm->trans_b = trans_b;
    gemm->lda = a->dim[1];
    gemm->ldb = b->dim[1];
    take_prepared(p, gemm);
    return MP_OK;
}

static bool is_row(const mp_shape *c, int64_t n) {
    return mp_shape_count(c) == n && c->rank > 0 && c->dim[c->rank - 1] == n;
}

static mp_status plan_gemm_with(mp_planner *p, const mp_activation_choice *activation) {
    const mp_dtype dtype = p->in[0].type;
    mp_gemm gemm;
    MP_TRY(check_gemm(p, mp_node_int(p->node, "transA", 0) != 0,
                      mp_node_int(p->node, "transB", 0) != 0, &gemm));
    gemm.alpha = mp_node_float(p->node, "alpha", 1);
    const float beta = mp_node_float(p->node, "beta", 1);
    const mp_shape shape = {.rank = 2, .dim = {gemm.m, gemm.n}};
    const mp_tensor *c = beta != 0 ? mp_plan_in(p, 2) : NULL;
    mp_shape both = shape;
    if (c != NULL) {
        MP_TRY(mp_shape_broadcast(&c->shape, &shape, &both));
    }
    if (!mp_shape_equal(&both, &shape)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "C of shape %s does not broadcast to %lldx%lld",
                       mp_shape_text(&c->shape, text), (long long)gemm.m, (long long)gemm.n);
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = MP_IN(0), [MP_GEMM_B] = MP_IN(1), [MP_GEMM_C] = MP_OUT(0)};
    bool add_later = false;
    if (c != NULL && is_row(&c->shape, gemm.n) && beta == 1.0f) {
        gemm.bias = true;
        operands[MP_GEMM_BIAS] = MP_IN(2);
    } else if (c != NULL && mp_shape_count(&c->shape) == gemm.m * gemm.n) {
        gemm.beta = beta;
        operands[MP_GEMM_D] = MP_IN(2);
    } else {
        add_later = c != NULL;
    }
    if (!add_later) {
        return plan_active(p, &gemm, operands, activation);
    }
    MP_TRY(mp_plan_rows(p, &gemm, operands));
    MP_TRY(mp_pointwise2(p, "mean_step", dtype, (mp_operand){MP_OUT(0), &shape},
                         (mp_operand){MP_IN(2), &c->shape}, MP_OUT(0), &shape, 1.0f, beta));
    return mp_plan_activation(p, activation, dtype, MP_OUT(0), mp_shape_count(&shape));
}

static mp_status plan_gemm(mp_planner *p) {
    static const mp_activation_choice none = {.word = NULL};
    return plan_gemm_with(p, &none);
}

static mp_status plan_fused_gemm(mp_planner *p) {
    mp_activation_choice activation;
    MP_TRY(read_activation(p, &activation));
    return plan_gemm_with(p, &activation);
}

static const mp_attr_def fused_attrs[] = {{"activation", MP_ATTR_STRING},
                                          {"activation_alpha", MP_ATTR_FLOAT},
                                          {"activation_beta", MP_ATTR_FLOAT},
                                          {"activation_gamma", MP_ATTR_FLOAT},
                                          {"alpha", MP_ATTR_FLOAT},
                                          {"beta", MP_ATTR_FLOAT},
                                          {"transA", MP_ATTR_INT},
                                          {"transB", MP_ATTR_INT},
                                          {NULL, 0}};
static const mp_attr_def norm_attrs[] = {{"epsilon", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def gated_attrs[] = {
    {"alpha", MP_ATTR_FLOAT}, {"gate", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def bias_attrs[] = {{"activation", MP_ATTR_STRING},
                                         {"activation_alpha", MP_ATTR_FLOAT},
                                         {"activation_beta", MP_ATTR_FLOAT},
                                         {NULL, 0}};
static const mp_attr_def gemm_attrs[] = {{"alpha", MP_ATTR_FLOAT},
                                         {"beta", MP_ATTR_FLOAT},
                                         {"transA", MP_ATTR_INT},
                                         {"transB", MP_ATTR_INT},
                                         {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "MatMul",
     .since = 1,
     .until = 13,
     .types = {{"T", MP_FLOATS}},
     .plan = plan_matmul,
     .prepare = prepare_matmul,
     .prepares_own = true},
    {.domain = MP_OWN_DOMAIN,
     .name = "MatMulBias",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}},
     .attrs = bias_attrs,
     .plan = plan_matmul_bias,
     .prepare = prepare_matmul,
     .prepares_own = true},
    {.domain = MP_OWN_DOMAIN,
     .name = "NormMatMul",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = norm_attrs,
     .plan = plan_norm_matmul},
    {.domain = MP_OWN_DOMAIN,
     .name = "GatedMatMul",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = gated_attrs,
     .plan = plan_gated_matmul},
    {.domain = "",
     .name = "Gemm",
     .since = 7,
     .until = 13,
     .types = {{"T", MP_FLOATS}},
     .attrs = gemm_attrs,
     .plan = plan_gemm,
     .prepare = prepare_gemm,
     .prepares_own = true},
    {.domain = "com.microsoft",
     .name = "FusedGemm",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .attrs = fused_attrs,
     .plan = plan_fused_gemm,
     .prepare = prepare_gemm,
     .prepares_own = true},
};

const mp_op_family mp__family_matmul = {"matmul", ops, MP_COUNT_OF(ops)};
