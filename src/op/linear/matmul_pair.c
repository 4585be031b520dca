/* matmul_pair.c - MatMulPair: two products of rows by constant matrices with an activation between
 * them, as a network for images ends its blocks; then a scale of each column, if any, and a
 * residual, if any. A pass puts it in the place of two products or two convolutions of single
 * pixels with channels last. By one kernel, or by two products where these are sooner.
 *
 * Inputs: x of any dimensions, the first matrix and its bias, the second and its bias, a residual
 * of the result's shape, the scale; of which all but x and the matrices may be left out. With
 * `turned` each matrix has a line for each column that it makes, and may have dimensions of 1
 * behind.
 * Kernel: linear/matmul_pair.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "op/core/families.h"
#include "op/fused/fused_steps.h"
#include "op/linear/few_rows.h"
#include "op/linear/matmul_pair_cut.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/activation_steps.h"

enum { X, W1, B1, W2, B2, RESIDUAL, SCALE };
enum { ALIGN = 16 };

typedef struct pair {
    mp_pair_size size;
    mp_dtype type;
    mp_activation_choice activation;
    mp_shape out;
} pair;

/* ---- what there is ---- */

static bool is_turned(const mp_planner *p) {
    return mp_node_flag(p->node, "turned", false);
}

/* Whether the kernel has elements of this type, of which it multiplies floats as TF32. */
static bool has_type(const mp_planner *p, mp_dtype type) {
    return type == MP_F16 || type == MP_BF16 || (type == MP_F32 && p->node->options.tf32);
}

/* Lines and their length, whichever of the two the columns are. */
static mp_status read_matrix(const mp_planner *p, int i, int64_t *from, int64_t *to) {
    const mp_shape *w = &p->in[i].shape;
    const int64_t lines = w->rank >= 2 ? w->dim[0] : 0, length = w->rank >= 2 ? w->dim[1] : 0;
    char text[MP_SHAPE_TEXT];
    if (w->rank < 2 || lines * length != mp_shape_count(w)) {
        return MP_FAIL(INVALID_ARGUMENT, "a matrix of shape %s", mp_shape_text(w, text));
    }
    *from = is_turned(p) ? length : lines;
    *to = is_turned(p) ? lines : length;
    return MP_OK;
}

static bool is_row(const mp_planner *p, int i, int64_t length) {
    const mp_tensor *row = mp_plan_in(p, i);
    return row == NULL || mp_shape_count(&row->shape) == length;
}

static mp_status read_pair(const mp_planner *p, pair *out) {
    const mp_shape *x = &p->in[X].shape;
    const mp_tensor *residual = mp_plan_in(p, RESIDUAL);
    mp_pair_size *size = &out->size;
    int64_t inner = 0;
    char text[MP_SHAPE_TEXT], first[MP_SHAPE_TEXT], second[MP_SHAPE_TEXT];
    *out = (pair){.type = p->in[X].type, .out = *x};
    MP_TRY(mp_activation_of(p->node, &out->activation));
    MP_TRY(read_matrix(p, W1, &size->from, &size->inner));
    MP_TRY(read_matrix(p, W2, &inner, &size->to));
    if (x->rank > 0) {
        out->out.dim[x->rank - 1] = size->to;
    }
    if (x->rank == 0 || x->dim[x->rank - 1] != size->from || inner != size->inner ||
        !is_row(p, B1, size->inner) || !is_row(p, B2, size->to) || !is_row(p, SCALE, size->to) ||
        (residual != NULL && !mp_shape_equal(&residual->shape, &out->out))) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "rows of shape %s, matrices of %s and %s and what is added to their products "
            "do not fit",
            mp_shape_text(x, text), mp_shape_text(&p->in[W1].shape, first),
            mp_shape_text(&p->in[W2].shape, second));
    }
    size->rows = size->from > 0 ? mp_shape_count(x) / size->from : 0;
    size->size = (int32_t)mp_dtype_size(out->type);
    size->steps = mp_plan_in(p, SCALE) != NULL;
    return MP_OK;
}

static mp_ref ref_of(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* ---- one kernel ---- */

/* Matrices are read in lines along what is summed: as they are given, or as they were prepared. */
static bool lies_right(const mp_planner *p, int i) {
    return is_turned(p) || mp_node_prepared(p->node, i);
}

static bool can_take(const mp_planner *p, const pair *x) {
    return has_type(p, x->type) && p->align >= ALIGN && lies_right(p, W1) && lies_right(p, W2) &&
           x->activation.kind != MP_ACTIVATION_OTHER;
}

static mp_status plan_kernel(mp_planner *p, const pair *x, mp_pair_args *a, int32_t rows,
                             int64_t held) {
    const mp_kernel *kernel = NULL;
    const uint32_t tiles = (uint32_t)MP_CEIL_DIV(x->size.rows, rows);
    const mp_grid grid = {.blocks = tiles << a->splits_log,
                          .lanes = K_PAIR_LANES,
                          .shared_bytes = (uint32_t)held,
                          .meets = a->splits_log > 0 ? 1U << a->splits_log : 0};
    a->rows = (int32_t)x->size.rows;
    a->from = (int32_t)x->size.from;
    a->inner = (int32_t)x->size.inner;
    a->to = (int32_t)x->size.to;
    a->activation = (int32_t)x->activation.kind;
    a->alpha = x->activation.a;
    a->beta = x->activation.b;
    a->by_units = mp_divider((uint32_t)(x->size.to / K_PAIR_UNIT));
    a->constant = mp_plan_is_constant(p, ref_of(p, SCALE));
    for (int i = W1; i <= B2; i++) {
        a->constant = a->constant && mp_plan_is_constant(p, ref_of(p, i));
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "matmul_pair_%d_%s", (int)rows, mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, grid, *a, MP_BIND(mp_pair_args, x, MP_IN(X)),
                     MP_BIND(mp_pair_args, w1, MP_IN(W1)), MP_BIND(mp_pair_args, b1, ref_of(p, B1)),
                     MP_BIND(mp_pair_args, w2, MP_IN(W2)), MP_BIND(mp_pair_args, b2, ref_of(p, B2)),
                     MP_BIND(mp_pair_args, scale, ref_of(p, SCALE)),
                     MP_BIND(mp_pair_args, residual, ref_of(p, RESIDUAL)),
                     MP_BIND(mp_pair_args, out, MP_OUT(0)));
}

/* ---- two products ---- */

/* out = a w + bias, and `d` if there is one. */
static mp_gemm gemm_of(const mp_planner *p, const pair *x, int w, int64_t k, int64_t n) {
    const bool turned = lies_right(p, w);
    return (mp_gemm){.type = x->type,
                     .trans_b = turned,
                     .tf32 = p->node->options.tf32,
                     .bias = mp_plan_in(p, w + 1) != NULL,
                     .m = x->size.rows,
                     .n = n,
                     .k = k,
                     .lda = k,
                     .ldb = turned ? k : n,
                     .ldc = n,
                     .batch = 1,
                     .alpha = 1,
                     .align = p->align};
}

static mp_status plan_first(mp_planner *p, const pair *x, mp_ref between) {
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = MP_IN(X),
                                               [MP_GEMM_B] = MP_IN(W1),
                                               [MP_GEMM_C] = between,
                                               [MP_GEMM_BIAS] = ref_of(p, B1)};
    mp_gemm gemm = gemm_of(p, x, W1, x->size.from, x->size.inner);
    gemm.activation = x->activation.kind;
    gemm.activation_alpha = x->activation.a;
    gemm.activation_beta = x->activation.b;
    mp_status status = MP_UNSUPPORTED;
    if (gemm.activation != MP_ACTIVATION_OTHER) {
        status = mp_plan_rows(p, &gemm, operands);
    }
    if (status != MP_UNSUPPORTED) {
        return status;
    }
    gemm.activation = MP_ACTIVATION_NONE;
    MP_TRY(mp_plan_rows(p, &gemm, operands));
    return mp_plan_activation(p, &x->activation, x->type, between, gemm.m * gemm.n);
}

/* out = made * scale + residual. */
static mp_status plan_scale(mp_planner *p, const pair *x, mp_ref made) {
    const mp_shape row = {.rank = 1, .dim = {x->size.to}};
    mp_operand in[3] = {{made, &x->out}, {MP_IN(SCALE), &row}};
    mp_expression e = {.input_count = 0};
    const mp_ref out = MP_OUT(0);
    int value = mp_expression_input(&e, x->type);
    value = mp_expression_function(&e, "mul", value, mp_expression_input(&e, x->type), 0, 0);
    if (mp_plan_in(p, RESIDUAL) != NULL) {
        in[2] = (mp_operand){MP_IN(RESIDUAL), &x->out};
        value = mp_expression_function(&e, "add", value, mp_expression_input(&e, x->type), 0, 0);
    }
    return mp_expression_output(&e, value) ? mp_plan_fused(p, &e, in, &out, &x->out)
                                           : MP_FAIL(INTERNAL, "a product has no function");
}

static mp_status plan_second(mp_planner *p, const pair *x, mp_ref between) {
    const bool scales = mp_plan_in(p, SCALE) != NULL;
    const bool adds = mp_plan_in(p, RESIDUAL) != NULL && !scales;
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = between,
                                               [MP_GEMM_B] = MP_IN(W2),
                                               [MP_GEMM_C] = MP_OUT(0),
                                               [MP_GEMM_D] = adds ? MP_IN(RESIDUAL) : MP_NOWHERE,
                                               [MP_GEMM_BIAS] = ref_of(p, B2)};
    mp_gemm gemm = gemm_of(p, x, W2, x->size.inner, x->size.to);
    gemm.beta = adds ? 1 : 0;
    MP_TRY(mp_plan_rows(p, &gemm, operands));
    return scales ? plan_scale(p, x, MP_OUT(0)) : MP_OK;
}

static mp_status plan_apart(mp_planner *p, const pair *x) {
    const mp_shape shape = {.rank = 2, .dim = {x->size.rows, x->size.inner}};
    mp_ref between;
    MP_TRY(mp_plan_scratch_shape(p, &shape, x->type, &between));
    MP_TRY(plan_first(p, x, between));
    return plan_second(p, x, between);
}

/* ---- the operator ---- */

static mp_status plan_pair(mp_planner *p) {
    pair x;
    mp_pair_args args = {.rows = 0};
    int32_t rows = 0;
    int64_t held = 0;
    MP_TRY(read_pair(p, &x));
    MP_TRY(mp_plan_output(p, 0, x.type, &x.out));
    if (mp_shape_count(&x.out) == 0) {
        return MP_OK;
    }
    if (can_take(p, &x) && mp_pair_cut(&p->device->info, &x.size, &args, &rows, &held)) {
        return plan_kernel(p, &x, &args, rows, held);
    }
    return plan_apart(p, &x);
}

/* By its matrices, as far as they are known. */
static mp_status accept(const mp_planner *p) {
    mp_pair_size size = {.size = (int32_t)mp_dtype_size(p->in[W1].type)};
    int64_t inner = 0;
    MP_TRY(read_matrix(p, W1, &size.from, &size.inner));
    MP_TRY(read_matrix(p, W2, &inner, &size.to));
    return inner == size.inner && has_type(p, p->in[W1].type) && mp_pair_suits(&size)
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "no kernel makes two such products");
}

/* Where the kernel may take it, a matrix comes in lines along what is summed. */
static mp_status prepare(mp_planner *p, int i) {
    const mp_tensor *w = &p->in[i];
    if ((i != W1 && i != W2) || is_turned(p) || w->shape.rank != 2 || !has_type(p, w->type) ||
        p->device->info.arch == 0) {
        return MP_OK;
    }
    const mp_shape turned = {.rank = 2, .dim = {w->shape.dim[1], w->shape.dim[0]}};
    const mp_strided from = {.ref = MP_IN(i), .stride = {1, w->shape.dim[1]}};
    const mp_strided to = {.ref = MP_OUT(0), .stride = {w->shape.dim[0], 1}};
    MP_TRY(mp_plan_output(p, 0, w->type, &w->shape));
    return mp_plan_strided_copy(p, &turned, mp_dtype_size(w->type), &from, &to);
}

static const mp_attr_def attrs[] = {{"activation", MP_ATTR_STRING},
                                    {"activation_alpha", MP_ATTR_FLOAT},
                                    {"activation_beta", MP_ATTR_FLOAT},
                                    {"turned", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "MatMulPair",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_pair,
     .accept = accept,
     .prepare = prepare,
     .prepares_own = true},
};

const mp_op_family mp__family_matmul_pair = {"matmul_pair", ops, MP_COUNT_OF(ops)};
