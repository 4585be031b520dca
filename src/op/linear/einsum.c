/* einsum.c - Einsum: operands are joined from the left, two at a time, each join one batched matrix
 * product (or an element-wise one, where nothing is summed).
 *
 * An operand is a view: labels with a size and a stride each. Diagonals are sums of strides, sizes
 * of one that stand for any size are left out. Before a join, labels that nobody needs any more are
 * summed; then the view is brought into the order batch, rows, sums, unless it is in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/linear/einsum_text.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/rows/reduce_steps.h"

#include <stdlib.h>
#include <string.h>

typedef struct view {
    mp_ref ref;
    mp_labels labels; /* each once */
    int64_t dim[MP_RANK_MAX], stride[MP_RANK_MAX];
} view;

__extension__ typedef unsigned __int128 label_set; /* bit i: label i */
static_assert(MP_LABELS <= 128, "a set has a bit for each label");

#define LABEL_BIT(label) ((label_set)1 << (label))

static label_set set_of(const mp_labels *labels) {
    label_set set = 0;
    for (int i = 0; i < labels->count; i++) {
        set |= LABEL_BIT(labels->at[i]);
    }
    return set;
}

/* ---- views ---- */

static view view_of(const mp_planner *p, int i, const mp_labels *labels, const mp_equation *e) {
    const mp_shape *shape = &p->in[i].shape;
    int64_t stride[MP_RANK_MAX] = {0};
    view v = {.ref = MP_IN(i)};
    mp_shape_strides(shape, stride);
    for (int d = 0; d < labels->count; d++) {
        const int label = labels->at[d];
        int at = 0;
        if (shape->dim[d] != e->dim[label]) {
            continue; /* 1, where others have more */
        }
        while (at < v.labels.count && v.labels.at[at] != label) {
            at++;
        }
        if (at == v.labels.count) {
            v.labels.at[v.labels.count++] = label;
            v.dim[at] = shape->dim[d];
            v.stride[at] = 0;
        }
        v.stride[at] += stride[d];
    }
    return v;
}

static mp_shape shape_of(const view *v) {
    mp_shape shape = {.rank = v->labels.count};
    memcpy(shape.dim, v->dim, sizeof shape.dim);
    return shape;
}

/* The dimensions of `v` in the order of `labels`, all of which it has. */
static view in_order(const view *v, const mp_labels *labels) {
    view out = {.ref = v->ref, .labels = *labels};
    for (int i = 0; i < labels->count; i++) {
        for (int k = 0; k < v->labels.count; k++) {
            if (v->labels.at[k] == labels->at[i]) {
                out.dim[i] = v->dim[k];
                out.stride[i] = v->stride[k];
            }
        }
    }
    return out;
}

static bool is_whole(const view *v) {
    int64_t step = 1;
    for (int d = v->labels.count - 1; d >= 0; d--) {
        if (v->dim[d] != 1 && v->stride[d] != step) {
            return false;
        }
        step *= v->dim[d];
    }
    return true;
}

static mp_status copy_to(mp_planner *p, mp_dtype dtype, const view *v, mp_ref to) {
    const mp_shape shape = shape_of(v);
    mp_strided source = {.ref = v->ref}, target = {.ref = to};
    memcpy(source.stride, v->stride, sizeof source.stride);
    mp_shape_strides(&shape, target.stride);
    return mp_plan_strided_copy(p, &shape, mp_dtype_size(dtype), &source, &target);
}

static mp_status new_whole(mp_planner *p, mp_dtype dtype, view *v) {
    const mp_shape shape = shape_of(v);
    mp_shape_strides(&shape, v->stride);
    return mp_plan_scratch_shape(p, &shape, dtype, &v->ref);
}

static mp_status make_whole(mp_planner *p, mp_dtype dtype, view *v) {
    if (is_whole(v)) {
        return MP_OK;
    }
    view fresh = *v;
    MP_TRY(new_whole(p, dtype, &fresh));
    MP_TRY(copy_to(p, dtype, v, fresh.ref));
    *v = fresh;
    return MP_OK;
}

/* Sums what is not in `keep`. */
static mp_status sum_out(mp_planner *p, mp_dtype dtype, view *v, label_set keep) {
    uint32_t axes = 0;
    view rest = {.labels = {.count = 0}};
    if ((set_of(&v->labels) & ~keep) == 0) {
        return MP_OK;
    }
    MP_TRY(make_whole(p, dtype, v));
    for (int d = 0; d < v->labels.count; d++) {
        if ((keep & LABEL_BIT(v->labels.at[d])) == 0) {
            axes |= 1u << d;
            continue;
        }
        rest.dim[rest.labels.count] = v->dim[d];
        rest.labels.at[rest.labels.count++] = v->labels.at[d];
    }
    const mp_shape shape = shape_of(v);
    MP_TRY(new_whole(p, dtype, &rest));
    MP_TRY(mp_plan_reduce(p, "sum", dtype, v->ref, &shape, axes, rest.ref));
    *v = rest;
    return MP_OK;
}

/* ---- joining two ---- */

/* Adds those labels of `from` that are in `set`: first in the order of `lead`, then in their own.
 */
static void append(mp_labels *to, const mp_labels *from, label_set set, const mp_labels *lead) {
    label_set added = 0;
    for (int pass = 0; pass < 2; pass++) {
        const mp_labels *order = pass == 0 ? lead : from;
        for (int i = 0; i < order->count; i++) {
            const label_set bit = LABEL_BIT(order->at[i]);
            if ((set & bit) != 0 && (added & bit) == 0 && (set_of(from) & bit) != 0) {
                to->at[to->count++] = order->at[i];
                added |= bit;
            }
        }
    }
}

static int64_t size_of(const mp_labels *labels, const mp_equation *e) {
    int64_t size = 1;
    for (int i = 0; i < labels->count; i++) {
        size *= e->dim[labels->at[i]];
    }
    return size;
}

typedef struct join {
    mp_labels batch, rows, columns, sums; /* in both; left alone; right alone; in both, not kept */
} join;

static mp_labels joined(const mp_labels *a, const mp_labels *b, const mp_labels *c) {
    mp_labels out = *a;
    for (int i = 0; i < b->count; i++) {
        out.at[out.count++] = b->at[i];
    }
    for (int i = 0; i < c->count; i++) {
        out.at[out.count++] = c->at[i];
    }
    return out;
}

/* The view as a batch of matrices of `first` by `second`; `*transposed` if it is stored the other
 * way. */
static mp_status as_matrices(mp_planner *p, mp_dtype dtype, const mp_labels *batch,
                             const mp_labels *first, const mp_labels *second, view *v,
                             bool *transposed) {
    const mp_labels straight = joined(batch, first, second), other = joined(batch, second, first);
    const view as_stored = in_order(v, &other);
    *v = in_order(v, &straight);
    *transposed = !is_whole(v) && is_whole(&as_stored);
    if (*transposed) {
        *v = as_stored;
        return MP_OK;
    }
    return make_whole(p, dtype, v);
}

static int32_t align_after(int32_t align, int64_t stride, mp_dtype dtype) {
    while (align > 1 && stride * (int64_t)mp_dtype_size(dtype) % align != 0) {
        align /= 2;
    }
    return align;
}

static mp_status multiply_matrices(mp_planner *p, mp_dtype dtype, const join *j,
                                   const mp_equation *e, view *a, view *b, mp_ref out) {
    mp_gemm gemm = {.type = dtype,
                    .tf32 = p->node->options.tf32,
                    .m = size_of(&j->rows, e),
                    .n = size_of(&j->columns, e),
                    .k = size_of(&j->sums, e),
                    .batch = size_of(&j->batch, e),
                    .alpha = 1,
                    .align = p->align};
    MP_TRY(as_matrices(p, dtype, &j->batch, &j->rows, &j->sums, a, &gemm.trans_a));
    MP_TRY(as_matrices(p, dtype, &j->batch, &j->sums, &j->columns, b, &gemm.trans_b));
    gemm.lda = gemm.trans_a ? gemm.m : gemm.k;
    gemm.ldb = gemm.trans_b ? gemm.k : gemm.n;
    gemm.ldc = gemm.n;
    const int64_t matrix[3] = {gemm.m * gemm.k, gemm.k * gemm.n, gemm.m * gemm.n};
    gemm.stride_a = matrix[0];
    gemm.stride_b = matrix[1];
    gemm.stride_c = matrix[2];
    for (int i = 0; i < 3 && gemm.batch > 1; i++) {
        gemm.align = align_after(gemm.align, matrix[i], dtype);
    }
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = a->ref, [MP_GEMM_B] = b->ref, [MP_GEMM_C] = out};
    return mp_plan_gemm(p, &gemm, operands);
}

/* As a tensor of all of `labels`, with ones where it lacks some. */
static mp_status spread(mp_planner *p, mp_dtype dtype, const mp_labels *labels, view *v,
                        mp_shape *out) {
    mp_labels own = {.count = 0};
    const label_set set = set_of(&v->labels);
    out->rank = labels->count;
    for (int i = 0; i < labels->count; i++) {
        out->dim[i] = 1;
        if ((set & LABEL_BIT(labels->at[i])) != 0) {
            own.at[own.count++] = labels->at[i];
        }
    }
    *v = in_order(v, &own);
    for (int i = 0, k = 0; i < labels->count; i++) {
        if (k < own.count && own.at[k] == labels->at[i]) {
            out->dim[i] = v->dim[k++];
        }
    }
    return make_whole(p, dtype, v);
}

static mp_status multiply_elements(mp_planner *p, mp_dtype dtype, const mp_labels *labels,
                                   const mp_shape *shape, view *a, view *b, mp_ref out) {
    mp_shape left, right;
    MP_TRY(spread(p, dtype, labels, a, &left));
    MP_TRY(spread(p, dtype, labels, b, &right));
    return mp_pointwise2(p, "mul", dtype, (mp_operand){a->ref, &left}, (mp_operand){b->ref, &right},
                         out, shape, 0, 0);
}

static mp_status check_rank(int rank) {
    return rank <= MP_RANK_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED,
                         "two inputs joined have rank %d; ranks up to %d are supported", rank,
                         MP_RANK_MAX);
}

/* The product of *a and b, of which the labels of `keep` are needed further, into *a. The `last`
 * goes to the output, if its labels come out in order. */
static mp_status join_two(mp_planner *p, mp_dtype dtype, const mp_equation *e, view *a, view *b,
                          label_set keep, bool last) {
    const bool whole_numbers = (MP_BIT(dtype) & MP_FLOATS) == 0;
    const label_set left = set_of(&a->labels), right = set_of(&b->labels);
    MP_TRY(sum_out(p, dtype, a, keep | right));
    MP_TRY(sum_out(p, dtype, b, keep | left));
    join j = {.batch = {.count = 0}};
    const label_set summed = left & right & ~keep;
    const label_set kept_sums = whole_numbers ? summed : 0; /* integers: product, then sum */
    append(&j.batch, &a->labels, (left & right & keep) | kept_sums, &e->out);
    append(&j.rows, &a->labels, left & ~right & keep, &e->out);
    append(&j.columns, &b->labels, right & ~left & keep, &e->out);
    append(&j.sums, &a->labels, summed & ~kept_sums, &e->out);
    MP_TRY(check_rank(j.batch.count + j.rows.count + j.columns.count));
    MP_TRY(check_rank(j.batch.count + j.rows.count + j.sums.count));
    MP_TRY(check_rank(j.batch.count + j.sums.count + j.columns.count));
    view out = {.labels = joined(&j.batch, &j.rows, &j.columns)};
    for (int i = 0; i < out.labels.count; i++) {
        out.dim[i] = e->dim[out.labels.at[i]];
    }
    const mp_shape shape = shape_of(&out);
    const bool direct = last && kept_sums == 0 && out.labels.count == e->out.count &&
                        memcmp(out.labels.at, e->out.at, (size_t)e->out.count * sizeof(int)) == 0;
    out.ref = MP_OUT(0);
    if (!direct) {
        MP_TRY(new_whole(p, dtype, &out));
    }
    if (mp_shape_count(&shape) > 0 && j.sums.count > 0) {
        MP_TRY(multiply_matrices(p, dtype, &j, e, a, b, out.ref));
    } else {
        MP_TRY(multiply_elements(p, dtype, &out.labels, &shape, a, b, out.ref));
    }
    *a = out;
    return sum_out(p, dtype, a, keep);
}

/* ---- the operator ---- */

static mp_status write_out(mp_planner *p, mp_dtype dtype, const mp_equation *e, const view *v) {
    if (v->ref.place == MP_PLACE_OUT) {
        return MP_OK;
    }
    const view ordered = in_order(v, &e->out);
    return copy_to(p, dtype, &ordered, MP_OUT(0));
}

static mp_status plan_with(mp_planner *p, mp_labels *labels, label_set *after) {
    const char *text = mp_node_string(p->node, "equation", NULL);
    const mp_dtype dtype = p->in[0].type;
    mp_equation e;
    if (text == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the attribute equation is needed");
    }
    MP_TRY(mp_einsum_read(p, text, labels, &e));
    mp_shape shape = {.rank = e.out.count};
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = e.dim[e.out.at[d]];
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    after[p->in_count - 1] = set_of(&e.out);
    for (int i = p->in_count - 1; i > 0; i--) {
        after[i - 1] = after[i] | set_of(&labels[i]);
    }
    view result = view_of(p, 0, &labels[0], &e);
    MP_TRY(sum_out(p, dtype, &result, after[0]));
    for (int i = 1; i < p->in_count; i++) {
        view next = view_of(p, i, &labels[i], &e);
        MP_TRY(join_two(p, dtype, &e, &result, &next, after[i], i == p->in_count - 1));
    }
    return write_out(p, dtype, &e, &result);
}

static mp_status plan_einsum(mp_planner *p) {
    mp_labels *labels = calloc((size_t)p->in_count, sizeof *labels);
    label_set *after = calloc((size_t)p->in_count, sizeof *after); /* needed behind each input */
    const mp_status status =
        labels != NULL && after != NULL
            ? plan_with(p, labels, after)
            : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %d inputs", p->in_count);
    free(labels);
    free(after);
    return status;
}

static const mp_attr_def equation[] = {{"equation", MP_ATTR_STRING}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "Einsum",
     .since = 12,
     .until = 12,
     .types = {{"T", MP_IEEE_FLOATS | MP_BIT(MP_I32) | MP_BIT(MP_I64)}},
     .attrs = equation,
     .variadic = true,
     .plan = plan_einsum},
};

const mp_op_family mp__family_einsum = {"einsum", ops, MP_COUNT_OF(ops)};
