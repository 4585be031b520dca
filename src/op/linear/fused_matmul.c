/* fused_matmul.c - FusedMatMul of com.microsoft, and TransposeMatMul, which it was before: a MatMul
 * of matrices that are stored transposed, or with their rows before the batch, times a number.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/op.h"
#include "op/linear/product_steps.h"

/* A or B as matrices that a library steps through. */
typedef struct matrices {
    mp_shape batch;
    int64_t stride[MP_RANK_MAX]; /* elements from one matrix to the next, by dimension of `batch` */
    int64_t rows, columns;       /* of a matrix as it is multiplied */
    int64_t pitch;               /* elements from one stored row to the next */
    bool turned;
} matrices;

/* `before`: stored [rows, batch..., columns] instead of [batch..., rows, columns]. */
static mp_status read_side(const mp_shape *shape, bool left, bool turned, bool before,
                           matrices *out) {
    const int rank = shape->rank;
    *out = (matrices){.turned = turned && rank > 1};
    if (rank == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "neither input may be a scalar");
    }
    if (rank == 1) {
        out->rows = left ? 1 : shape->dim[0];
        out->columns = left ? shape->dim[0] : 1;
        out->pitch = out->columns;
        return MP_OK;
    }
    const bool moved = before && rank > 2;
    const int64_t rows = shape->dim[moved ? 0 : rank - 2];
    const int64_t columns = shape->dim[rank - 1];
    out->batch.rank = rank - 2;
    int64_t step = moved ? columns : rows * columns;
    for (int d = rank - 3; d >= 0; d--) {
        out->batch.dim[d] = shape->dim[moved ? d + 1 : d];
        out->stride[d] = step;
        step *= out->batch.dim[d];
    }
    out->pitch = moved ? step : columns;
    out->rows = turned ? columns : rows;
    out->columns = turned ? rows : columns;
    return MP_OK;
}

/* Strides along the dimensions of `to`: 0 where the matrix is repeated. */
static void spread(const matrices *x, const mp_shape *to, int64_t stride[MP_RANK_MAX]) {
    const int lead = to->rank - x->batch.rank;
    for (int d = 0; d < to->rank; d++) {
        stride[d] = d < lead || x->batch.dim[d - lead] == 1 ? 0 : x->stride[d - lead];
    }
}

static mp_status plan_fused_matmul(mp_planner *p) {
    const mp_shape *a_shape = &p->in[0].shape, *b_shape = &p->in[1].shape;
    matrices a, b;
    mp_shape batch;
    int64_t stride[2][MP_RANK_MAX];
    mp_space space;
    MP_TRY(read_side(a_shape, true, mp_node_int(p->node, "transA", 0) != 0,
                     mp_node_int(p->node, "transBatchA", 0) != 0, &a));
    MP_TRY(read_side(b_shape, false, mp_node_int(p->node, "transB", 0) != 0,
                     mp_node_int(p->node, "transBatchB", 0) != 0, &b));
    if (a.columns != b.rows) {
        char left[MP_SHAPE_TEXT], right[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "A of shape %s and B of shape %s cannot be multiplied",
                       mp_shape_text(a_shape, left), mp_shape_text(b_shape, right));
    }
    MP_TRY(mp_shape_broadcast(&a.batch, &b.batch, &batch));
    mp_shape out = batch;
    if (a_shape->rank > 1) {
        out.dim[out.rank++] = a.rows;
    }
    if (b_shape->rank > 1) {
        out.dim[out.rank++] = b.columns;
    }
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    mp_gemm gemm = {.type = p->in[0].type,
                    .trans_a = a.turned,
                    .trans_b = b.turned,
                    .tf32 = p->node->options.tf32,
                    .m = a.rows,
                    .n = b.columns,
                    .k = a.columns,
                    .lda = a.pitch,
                    .ldb = b.pitch,
                    .ldc = b.columns,
                    .alpha = mp_node_float(p->node, "alpha", 1),
                    .align = p->align};
    /* One B for all: the rows of every A are one matrix. */
    if (!a.turned && a.pitch == a.columns && mp_shape_count(&b.batch) == 1) {
        gemm.m *= mp_shape_count(&batch);
        batch.rank = 0;
    }
    spread(&a, &batch, stride[0]);
    spread(&b, &batch, stride[1]);
    mp_space_make(&batch, stride, 2, &space);
    return mp_plan_products(p, &gemm, &space);
}

static const mp_attr_def attrs[] = {{"alpha", MP_ATTR_FLOAT},     {"transA", MP_ATTR_INT},
                                    {"transB", MP_ATTR_INT},      {"transBatchA", MP_ATTR_INT},
                                    {"transBatchB", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def old_attrs[] = {
    {"alpha", MP_ATTR_FLOAT}, {"transA", MP_ATTR_INT}, {"transB", MP_ATTR_INT}, {NULL, 0}};

#define ROW(name_, attrs_)                                                        \
    {                                                                             \
        .domain = "com.microsoft", .name = (name_), .since = 1, .until = 1,       \
        .types = {{"T", MP_FLOATS}}, .attrs = (attrs_), .plan = plan_fused_matmul \
    }

static const mp_op ops[] = {ROW("FusedMatMul", attrs), ROW("TransposeMatMul", old_attrs)};

const mp_op_family mp__family_fused_matmul = {"fused_matmul", ops, MP_COUNT_OF(ops)};
