/* gemm_float8.c - GemmFloat8: Y = activation(alpha A B scaleA scaleB + beta C) scaleY.
 *
 * Matrices of one type without scales are a product of that type. Others are cast to float and
 * multiplied: what has 8 or 16 bits is exact there and in TF32 alike, so a device may take that
 * without loss. The rest is one pass over the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/fused_steps.h"
#include "op/pointwise/activation_steps.h"
#include "op/pointwise/cast_steps.h"

enum { A, B, C, SCALE_A, SCALE_B, SCALE_Y };

enum {
    FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    ANY = FLOATS | MP_BIT(MP_F8E4M3FN) | MP_BIT(MP_F8E5M2),
};

typedef struct product {
    mp_gemm gemm;
    mp_shape shape;
    mp_dtype type;      /* of the result */
    const mp_tensor *c; /* NULL where it does not count */
    float alpha, beta;
    mp_activation_choice activation;
} product;

/* ---- what is asked ---- */

static mp_status read_activation(const mp_node *node, mp_activation_choice *out) {
    static const float by_tanh = 1;
    const char *name = mp_node_string(node, "activation", "NONE");
    if (strcmp(name, "RELU") == 0) {
        return mp_activation_read("Relu", NULL, 0, out);
    }
    if (strcmp(name, "GELU") == 0) {
        return mp_activation_read("Gelu", &by_tanh, 1, out);
    }
    return strcmp(name, "NONE") == 0 || name[0] == '\0'
               ? mp_activation_read(NULL, NULL, 0, out)
               : MP_FAIL(INVALID_ARGUMENT, "the activation '%s' is none of RELU, GELU and NONE",
                         name);
}

static mp_status read_gemm(const mp_planner *p, product *x) {
    const mp_shape *a = &p->in[A].shape;
    const mp_shape *b = &p->in[B].shape;
    const bool trans_a = mp_node_int(p->node, "transA", 0) != 0;
    const bool trans_b = mp_node_int(p->node, "transB", 0) != 0;
    char left[MP_SHAPE_TEXT];
    char right[MP_SHAPE_TEXT];
    if (a->rank != 2 || b->rank != 2 || a->dim[trans_a ? 0 : 1] != b->dim[trans_b ? 1 : 0]) {
        return MP_FAIL(INVALID_ARGUMENT, "A of shape %s and B of shape %s cannot be multiplied",
                       mp_shape_text(a, left), mp_shape_text(b, right));
    }
    x->gemm = (mp_gemm){.trans_a = trans_a,
                        .trans_b = trans_b,
                        .m = a->dim[trans_a ? 1 : 0],
                        .n = b->dim[trans_b ? 0 : 1],
                        .k = a->dim[trans_a ? 0 : 1],
                        .lda = a->dim[1],
                        .ldb = b->dim[1],
                        .batch = 1,
                        .alpha = 1,
                        .align = p->align};
    x->gemm.ldc = x->gemm.n;
    x->shape = (mp_shape){.rank = 2, .dim = {x->gemm.m, x->gemm.n}};
    return MP_OK;
}

static mp_status check_scales(const mp_planner *p) {
    static const char *const names[] = {"scaleA", "scaleB", "scaleY"};
    for (int i = SCALE_A; i <= SCALE_Y; i++) {
        const mp_tensor *scale = mp_plan_in(p, i);
        if (scale != NULL && mp_shape_count(&scale->shape) != 1) {
            return MP_FAIL(INVALID_ARGUMENT, "%s has %lld values; it is one", names[i - SCALE_A],
                           (long long)mp_shape_count(&scale->shape));
        }
    }
    return MP_OK;
}

static mp_status read_product(const mp_planner *p, product *x) {
    const int64_t asked = mp_node_int(p->node, "dtype", MP_F32);
    mp_shape both;
    x->type = mp_dtype_of_onnx(asked);
    x->alpha = mp_node_float(p->node, "alpha", 1);
    x->beta = mp_node_float(p->node, "beta", 0);
    x->c = x->beta != 0 ? mp_plan_in(p, C) : NULL;
    if ((MP_BIT(x->type) & ANY) == 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "dtype is ONNX's element type %lld; float, float16, bfloat16, float8e4m3fn "
                       "and float8e5m2 are possible",
                       (long long)asked);
    }
    MP_TRY(read_activation(p->node, &x->activation));
    MP_TRY(read_gemm(p, x));
    MP_TRY(check_scales(p));
    if (x->c == NULL) {
        return MP_OK;
    }
    MP_TRY(mp_shape_broadcast(&x->c->shape, &x->shape, &both));
    if (!mp_shape_equal(&both, &x->shape)) {
        char text[MP_SHAPE_TEXT];
        char of[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "C of shape %s is not repeated to that of Y, %s",
                       mp_shape_text(&x->c->shape, text), mp_shape_text(&x->shape, of));
    }
    return MP_OK;
}

/* ---- the product ---- */

static bool is_plain(const mp_planner *p, const product *x) {
    const mp_dtype type = p->in[A].type;
    return (MP_BIT(type) & FLOATS) != 0 && p->in[B].type == type && x->type == type &&
           x->c == NULL && x->activation.word == NULL && mp_plan_in(p, SCALE_A) == NULL &&
           mp_plan_in(p, SCALE_B) == NULL && mp_plan_in(p, SCALE_Y) == NULL;
}

static mp_status multiply(mp_planner *p, const mp_gemm *gemm, mp_ref a, mp_ref b, mp_ref out) {
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = a, [MP_GEMM_B] = b, [MP_GEMM_C] = out};
    return mp_plan_gemm(p, gemm, operands);
}

static mp_status as_float(mp_planner *p, int i, mp_ref *out) {
    const mp_tensor *x = &p->in[i];
    *out = MP_IN(i);
    if (x->type == MP_F32 || mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, &x->shape, MP_F32, out));
    return mp_plan_cast(p, (mp_typed){x->type, MP_IN(i)}, (mp_typed){MP_F32, *out}, &x->shape,
                        (mp_narrowing){.saturate = true});
}

/* ---- what is done to it ---- */

enum { OPERANDS = 5 };

typedef struct epilogue {
    mp_expression e;
    mp_operand in[OPERANDS];
    int value;
} epilogue;

static int operand(epilogue *to, mp_dtype type, mp_ref ref, const mp_shape *shape) {
    to->in[to->e.input_count] = (mp_operand){ref, shape};
    return mp_expression_input(&to->e, type);
}

static void scale_by(const mp_planner *p, epilogue *to, int i) {
    static const mp_shape one = {.rank = 0};
    if (mp_plan_in(p, i) != NULL) {
        const int scale = operand(to, MP_F32, MP_IN(i), &one);
        to->value = mp_expression_function(&to->e, "mul", to->value, scale, 0, 0);
    }
}

static void add_c(const product *x, epilogue *to) {
    int c = operand(to, x->c->type, MP_IN(C), &x->c->shape);
    c = x->c->type != MP_F32 ? mp_expression_cast(&to->e, c, MP_F32) : c;
    c = mp_expression_function(&to->e, "affine", c, MP_NO_REGISTER, x->beta, 0);
    to->value = mp_expression_function(&to->e, "add", to->value, c, 0, 0);
}

/* From the product at `sum`, in float, to the result at `out`, of type `type`. */
static mp_status finish(mp_planner *p, const product *x, mp_ref sum, mp_dtype type, mp_ref out) {
    epilogue to = {.value = 0};
    to.value = operand(&to, MP_F32, sum, &x->shape);
    to.value = mp_expression_function(&to.e, "affine", to.value, MP_NO_REGISTER, x->alpha, 0);
    scale_by(p, &to, SCALE_A);
    scale_by(p, &to, SCALE_B);
    if (x->c != NULL) {
        add_c(x, &to);
    }
    if (x->activation.word != NULL) {
        to.value = mp_expression_function(&to.e, x->activation.word, to.value, MP_NO_REGISTER,
                                          x->activation.a, x->activation.b);
    }
    scale_by(p, &to, SCALE_Y);
    if (type != MP_F32) {
        to.value = mp_expression_cast(&to.e, to.value, type);
    }
    return mp_expression_output(&to.e, to.value)
               ? mp_plan_fused(p, &to.e, to.in, &out, &x->shape)
               : MP_FAIL(INTERNAL, "the activation has no function");
}

static mp_status plan(mp_planner *p) {
    const bool wide = p->in[A].type == MP_F32 || p->in[B].type == MP_F32;
    mp_typed sum = {MP_F32, MP_NOWHERE};
    mp_ref a = MP_NOWHERE;
    mp_ref b = MP_NOWHERE;
    product x = {.beta = 0};
    MP_TRY(read_product(p, &x));
    MP_TRY(mp_plan_output(p, 0, x.type, &x.shape));
    if (mp_shape_count(&x.shape) == 0) {
        return MP_OK;
    }
    x.gemm.type = is_plain(p, &x) ? x.type : MP_F32;
    x.gemm.tf32 = p->node->options.tf32 || !wide;
    if (is_plain(p, &x)) {
        x.gemm.alpha = x.alpha;
        return multiply(p, &x.gemm, MP_IN(A), MP_IN(B), MP_OUT(0));
    }
    MP_TRY(as_float(p, A, &a));
    MP_TRY(as_float(p, B, &b));
    MP_TRY(mp_plan_scratch_shape(p, &x.shape, MP_F32, &sum.ref));
    MP_TRY(multiply(p, &x.gemm, a, b, sum.ref));
    if (!mp_is_narrow(x.type)) {
        return finish(p, &x, sum.ref, x.type, MP_OUT(0));
    }
    MP_TRY(finish(p, &x, sum.ref, MP_F32, sum.ref));
    return mp_plan_cast(p, sum, (mp_typed){x.type, MP_OUT(0)}, &x.shape,
                        (mp_narrowing){.saturate = true});
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"activation", MP_ATTR_STRING},
                                    {"alpha", MP_ATTR_FLOAT},
                                    {"beta", MP_ATTR_FLOAT},
                                    {"dtype", MP_ATTR_INT},
                                    {"transA", MP_ATTR_INT},
                                    {"transB", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GemmFloat8",
     .since = 1,
     .until = 1,
     .types = {{"TA", ANY}, {"TB", ANY}, {"TC", FLOATS}, {"TR", ANY}, {"TS", MP_BIT(MP_F32)}},
     .attrs = attrs,
     .plan = plan},
};

const mp_op_family mp__family_gemm_float8 = {"gemm_float8", ops, MP_COUNT_OF(ops)};
