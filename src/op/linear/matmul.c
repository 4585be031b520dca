/* matmul.c - MatMul and Gemm, by library math.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/linear/product.h"
#include "op/pointwise/pointwise_steps.h"

#include <string.h>

enum { PRODUCTS_MAX = 1 << 16 }; /* separate products that one MatMul may become */

/* The alignment that holds for an address and for steps of `stride` elements from it. */
static int32_t align_after(int32_t align, int64_t stride, mp_dtype dtype) {
    const int64_t bytes = stride * (int64_t)mp_dtype_size(dtype);
    while (align > 1 && bytes % align != 0) {
        align /= 2;
    }
    return align;
}

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

static mp_status add_gemm(mp_planner *p, const mp_gemm *gemm, mp_ref a, mp_ref b, mp_ref c) {
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = a, [MP_GEMM_B] = b, [MP_GEMM_C] = c};
    return mp_plan_gemm(p, gemm, operands);
}

/* Batches that both sides step through evenly are one call; what is left outside is a loop. */
static mp_status plan_batches(mp_planner *p, mp_dtype dtype, const mp_product *x) {
    int64_t stride[2][MP_RANK_MAX];
    mp_space space;
    mp_shape_broadcast_strides(&x->a_batch, &x->batch, stride[0]);
    mp_shape_broadcast_strides(&x->b_batch, &x->batch, stride[1]);
    mp_space_make(&x->batch, stride, 2, &space);
    const int inner = space.rank - 1;
    int64_t loops = 1;
    for (int d = 0; d < inner; d++) {
        loops *= space.dim[d];
    }
    if (loops > PRODUCTS_MAX) {
        return MP_FAIL(UNSUPPORTED, "%lld separate matrix products are more than %d",
                       (long long)loops, PRODUCTS_MAX);
    }
    const int64_t size = (int64_t)mp_dtype_size(dtype);
    const int64_t matrix[3] = {x->m * x->k, x->k * x->n, x->m * x->n};
    mp_gemm gemm = gemm_for(p, dtype, x->m, x->n, x->k);
    gemm.batch = space.dim[inner];
    gemm.stride_a = space.stride[0][inner] * matrix[0];
    gemm.stride_b = space.stride[1][inner] * matrix[1];
    gemm.stride_c = matrix[2];
    for (int i = 0; i < 3 && loops * gemm.batch > 1; i++) {
        gemm.align = align_after(gemm.align, matrix[i], dtype);
    }
    for (int64_t i = 0; i < loops; i++) {
        int64_t rest = i;
        int64_t at[2] = {0, 0};
        for (int d = inner - 1; d >= 0; d--) {
            const int64_t index = rest % space.dim[d];
            rest /= space.dim[d];
            at[0] += index * space.stride[0][d];
            at[1] += index * space.stride[1][d];
        }
        MP_TRY(add_gemm(p, &gemm, mp_ref_at(MP_IN(0), (uint64_t)(at[0] * matrix[0] * size)),
                        mp_ref_at(MP_IN(1), (uint64_t)(at[1] * matrix[1] * size)),
                        mp_ref_at(MP_OUT(0), (uint64_t)(i * gemm.batch * matrix[2] * size))));
    }
    return MP_OK;
}

/* With a third input, a row that is added to each row of the product; B is one matrix then. */
static mp_status plan_one_b(mp_planner *p, mp_dtype dtype, const mp_product *x) {
    mp_gemm gemm = gemm_for(p, dtype, mp_shape_count(&x->batch) * x->m, x->n, x->k);
    gemm.bias = mp_plan_in(p, 2) != NULL;
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = MP_IN(0),
                                               [MP_GEMM_B] = MP_IN(1),
                                               [MP_GEMM_C] = MP_OUT(0),
                                               [MP_GEMM_BIAS] = gemm.bias ? MP_IN(2) : MP_NOWHERE};
    return mp_plan_gemm(p, &gemm, operands);
}

static mp_status plan_matmul_bias(mp_planner *p) {
    const mp_dtype dtype = p->in[0].type;
    const mp_tensor *bias = mp_plan_in(p, 2);
    mp_product x;
    MP_TRY(mp_product_read(&p->in[0].shape, &p->in[1].shape, &x));
    if (bias == NULL || mp_shape_count(&x.b_batch) != 1 || mp_shape_count(&bias->shape) != x.n) {
        return MP_FAIL(INVALID_ARGUMENT, "a product with a row added needs one B, and %lld numbers",
                       (long long)x.n);
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &x.out));
    return mp_shape_count(&x.out) > 0 ? plan_one_b(p, dtype, &x) : MP_OK;
}

static mp_status plan_matmul(mp_planner *p) {
    const mp_dtype dtype = p->in[0].type;
    mp_product x;
    MP_TRY(mp_product_read(&p->in[0].shape, &p->in[1].shape, &x));
    MP_TRY(mp_plan_output(p, 0, dtype, &x.out));
    if (mp_shape_count(&x.out) == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&x.b_batch) == 1) { /* one B for all: the rows of every A are one matrix */
        return plan_one_b(p, dtype, &x);
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
    return MP_OK;
}

static bool is_row(const mp_shape *c, int64_t n) {
    return mp_shape_count(c) == n && c->rank > 0 && c->dim[c->rank - 1] == n;
}

static mp_status plan_gemm(mp_planner *p) {
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
    MP_TRY(mp_plan_gemm(p, &gemm, operands));
    return !add_later
               ? MP_OK
               : mp_pointwise2(p, "mean_step", dtype, (mp_operand){MP_OUT(0), &shape},
                               (mp_operand){MP_IN(2), &c->shape}, MP_OUT(0), &shape, 1.0f, beta);
}

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
     .plan = plan_matmul},
    {.domain = MP_OWN_DOMAIN,
     .name = "MatMulBias",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}},
     .plan = plan_matmul_bias},
    {.domain = "",
     .name = "Gemm",
     .since = 7,
     .until = 13,
     .types = {{"T", MP_FLOATS}},
     .attrs = gemm_attrs,
     .plan = plan_gemm},
};

const mp_op_family mp__family_matmul = {"matmul", ops, MP_COUNT_OF(ops)};
