/* slice.c - Transpose, Expand, Slice, Crop: strided copies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/strided_copy.h"

#include "op/core/families.h"
#include "op/core/host_input.h"

/* Fills the output, of that shape, with what `source` sees of the input. */
static mp_status fill_output(mp_planner *p, const mp_shape *shape, const mp_strided *source) {
    mp_strided target = {.ref = MP_OUT(0)};
    mp_shape_strides(shape, target.stride);
    return mp_plan_strided_copy(p, shape, mp_dtype_size(p->in[0].type), source, &target);
}

/* ---- Transpose ---- */

static mp_status read_permutation(const mp_node *node, int rank, int *out) {
    const mp_attr *attr = mp_node_attr(node, "perm");
    uint32_t seen = 0;
    if (attr != NULL && attr->count != (size_t)rank) {
        return MP_FAIL(INVALID_ARGUMENT, "perm has %zu values for a tensor of rank %d", attr->count,
                       rank);
    }
    for (int d = 0; d < rank; d++) {
        out[d] = rank - 1 - d;
        if (attr != NULL) {
            MP_TRY(mp_shape_axis(attr->ints[d], rank, "perm", &out[d]));
        }
        seen |= 1u << out[d];
    }
    return seen == (1u << rank) - 1 ? MP_OK : MP_FAIL(INVALID_ARGUMENT, "perm names an axis twice");
}

static mp_status plan_transpose(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int order[MP_RANK_MAX];
    int64_t stride[MP_RANK_MAX] = {0};
    mp_shape shape = {.rank = x->shape.rank};
    MP_TRY(read_permutation(p->node, x->shape.rank, order));
    mp_shape_strides(&x->shape, stride);
    mp_strided source = {.ref = MP_IN(0)};
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = x->shape.dim[order[d]];
        source.stride[d] = stride[order[d]];
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return fill_output(p, &shape, &source);
}

/* ---- Expand ---- */

static mp_status plan_expand(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_shape asked = {.rank = 0};
    mp_shape shape;
    int count = 0;
    MP_TRY(mp_host_ints(p, 1, "shape", MP_RANK_MAX, asked.dim, &count));
    asked.rank = MP_MAX(count, 0);
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&asked, x->type, &bytes));
    MP_TRY(mp_shape_broadcast(&x->shape, &asked, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    mp_strided source = {.ref = MP_IN(0)};
    mp_shape_broadcast_strides(&x->shape, &shape, source.stride);
    return fill_output(p, &shape, &source);
}

/* ---- Slice ---- */

typedef struct slices {
    int64_t start[MP_RANK_MAX], step[MP_RANK_MAX];
    mp_shape out;
} slices;

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : MP_MIN(value, high);
}

/* One axis from `start` to `end` (exclusive) in steps of `step`, as Python has it. */
static mp_status slice_cut(slices *s, int axis, int64_t start, int64_t end, int64_t step) {
    const int64_t dim = s->out.dim[axis];
    if (step == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "steps has a 0 for axis %d", axis);
    }
    start = start < 0 && start >= -dim ? start + dim : start;
    end = end < 0 && end >= -dim ? end + dim : end;
    const int64_t last = step > 0 ? dim : dim - 1;
    const int64_t first = step > 0 ? 0 : -1;
    if (dim == 0) { /* for a negative step no place to start from is left */
        s->start[axis] = 0;
        s->step[axis] = step;
        return MP_OK;
    }
    start = clamp(start, 0, last);
    end = clamp(end, first, last);
    const int64_t distance = step > 0 ? end - start : start - end;
    const uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    s->out.dim[axis] = distance > 0 ? (int64_t)MP_CEIL_DIV((uint64_t)distance, size) : 0;
    s->start[axis] = start;
    s->step[axis] = step;
    return MP_OK;
}

static mp_status read_slices(const mp_planner *p, slices *s) {
    int64_t starts[MP_RANK_MAX];
    int64_t ends[MP_RANK_MAX];
    int64_t axes[MP_RANK_MAX];
    int64_t steps[MP_RANK_MAX];
    int count = 0;
    int end_count = 0;
    int axis_count = 0;
    int step_count = 0;
    uint32_t seen = 0;
    MP_TRY(mp_listed_ints(p, "starts", 1, MP_RANK_MAX, starts, &count));
    MP_TRY(mp_listed_ints(p, "ends", 2, MP_RANK_MAX, ends, &end_count));
    MP_TRY(mp_listed_ints(p, "axes", 3, MP_RANK_MAX, axes, &axis_count));
    MP_TRY(mp_listed_ints(p, "steps", 4, MP_RANK_MAX, steps, &step_count));
    if (count < 0 || end_count != count || (axis_count >= 0 && axis_count != count) ||
        (step_count >= 0 && step_count != count)) {
        return MP_FAIL(INVALID_ARGUMENT, "starts, ends, axes and steps have %d, %d, %d, %d values",
                       count, end_count, axis_count, step_count);
    }
    for (int k = 0; k < count; k++) {
        int axis = 0;
        MP_TRY(mp_shape_axis(axis_count >= 0 ? axes[k] : k, s->out.rank, "axes", &axis));
        if ((seen & 1u << axis) != 0) {
            return MP_FAIL(INVALID_ARGUMENT, "axes names axis %d twice", axis);
        }
        seen |= 1u << axis;
        MP_TRY(slice_cut(s, axis, starts[k], ends[k], step_count >= 0 ? steps[k] : 1));
    }
    return MP_OK;
}

static mp_status plan_slice(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int64_t stride[MP_RANK_MAX] = {0};
    slices s = {.out = x->shape};
    for (int d = 0; d < MP_RANK_MAX; d++) {
        s.step[d] = 1;
    }
    MP_TRY(read_slices(p, &s));
    MP_TRY(mp_plan_output(p, 0, x->type, &s.out));
    if (mp_shape_count(&s.out) == 0 || mp_plan_out_pitch(p, 0) > 0) { /* it lies in the input */
        return MP_OK;
    }
    mp_tensor_strides(x, stride);
    mp_strided source = {.ref = MP_IN(0)};
    for (int d = 0; d < s.out.rank; d++) {
        source.offset += s.start[d] * stride[d];
        source.stride[d] = s.out.dim[d] > 1 ? s.step[d] * stride[d] : 0;
    }
    return fill_output(p, &s.out, &source);
}

/* ---- Crop ---- */

/* What lies within the border [left, top, right, bottom], or `scale` rows and columns of it. */
static mp_status plan_crop(mp_planner *p) {
    enum { RANK = 4 };
    const mp_tensor *x = &p->in[0];
    int64_t border[4];
    int64_t scale[2];
    int count = 0;
    int scale_count = 0;
    char text[MP_SHAPE_TEXT];
    MP_TRY(mp_listed_ints(p, "border", -1, 4, border, &count));
    MP_TRY(mp_listed_ints(p, "scale", -1, 2, scale, &scale_count));
    if (x->shape.rank != RANK || count != 4 || (scale_count >= 1 && scale_count != 2)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "input of shape %s with %d values of border and %d of scale; a rank of 4, "
                       "four and none or two are needed",
                       mp_shape_text(&x->shape, text), count, scale_count);
    }
    mp_shape shape = x->shape;
    mp_strided source = {.ref = MP_IN(0)};
    mp_shape_strides(&x->shape, source.stride);
    for (int k = 0; k < 2; k++) { /* rows, then columns */
        const int64_t dim = x->shape.dim[k + 2];
        const int64_t from = border[1 - k];
        const int64_t behind = border[3 - k];
        if (from < 0 || behind < 0 || from > dim || behind > dim - from) {
            return MP_FAIL(INVALID_ARGUMENT, "border leaves nothing of input of shape %s",
                           mp_shape_text(&x->shape, text));
        }
        const int64_t length = scale_count == 2 ? scale[k] : dim - from - behind;
        if (length < 0 || length > dim - from) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "scale %lld does not fit into %lld elements of axis %d",
                           (long long)length, (long long)dim, k + 2);
        }
        shape.dim[k + 2] = length;
        source.offset += from * source.stride[k + 2];
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return fill_output(p, &shape, &source);
}

/* ---- the rows ---- */

static const mp_attr_def perm[] = {{"perm", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def slice_attrs[] = {
    {"starts", MP_ATTR_INTS}, {"ends", MP_ATTR_INTS}, {"axes", MP_ATTR_INTS}, {NULL, 0}};

enum { INDEX = 1u << MP_I32 | 1u << MP_I64 };

#define MOVE(op_name, from, to, set, function, ...)                                          \
    {                                                                                        \
        .domain = "", .name = (op_name), .since = (from), .until = (to), .plan = (function), \
        .types = {{"T", (set)}}, __VA_ARGS__                                                 \
    }

static const mp_attr_def crop_attrs[] = {
    {"border", MP_ATTR_INTS}, {"scale", MP_ATTR_INTS}, {NULL, 0}};

/* ONNX Runtime's CPU provider takes steps as a fifth input. The schema knows four, so a fifth is
 * not brought into host memory for us. */
static mp_status accept_dynamic_slice(const mp_planner *p) {
    return p->in_count <= 4
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "DynamicSlice with %d inputs; up to 4 are supported",
                         p->in_count);
}

static const mp_op ops[] = {
    MOVE("Crop", 1, 1, MP_IEEE_FLOATS, plan_crop, .attrs = crop_attrs),
    {.domain = "",
     .name = "DynamicSlice",
     .since = 1,
     .until = 1,
     .host_in = 0xe,
     .types = {{"T", MP_OLD_TYPES}, {"Tind", INDEX}},
     .plan = plan_slice,
     .accept = accept_dynamic_slice},
    MOVE("Expand", 8, 13, MP_ALL_TYPES, plan_expand, .host_in = 1u << 1),
    MOVE("Slice", 1, 1, MP_OLD_TYPES, plan_slice, .attrs = slice_attrs),
    {.domain = "",
     .name = "Slice",
     .since = 10,
     .until = 13,
     .host_in = 0x1e,
     .types = {{"T", MP_ALL_TYPES}, {"Tind", INDEX}},
     .apart_in = 1,
     .apart_out = 1,
     .plan = plan_slice},
    MOVE("Transpose", 1, 25, MP_ALL_TYPES | MP_FLOAT8, plan_transpose, .attrs = perm),
};

const mp_op_family mp__family_slice = {"slice", ops, MP_COUNT_OF(ops)};
