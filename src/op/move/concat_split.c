/* concat_split.c - Concat and Split: tensors side by side in a larger one, many in one launch.
 * Parts that lie in the whole already (mp_tensor.is_there, and of a Split where rows lie apart) are
 * left.
 * Kernel: move/concat_split.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/concat_split.h"
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"

#include <stdlib.h>

/* ---- steps: every tensor as rows of bytes ---- */

typedef struct part {
    mp_ref ref;
    int64_t width;  /* bytes of a row */
    int64_t pitch;  /* bytes from one of them to the next */
    int64_t column; /* where they are in a row of the whole */
    bool is_there;  /* nothing is to be moved */
} part;

typedef struct parts {
    mp_ref whole;
    int64_t rows;
    int64_t width; /* bytes from one row to the next */
    int64_t unit;  /* the widest of which all consists */
    bool is_split;
    const part *list;
    int count;
} parts;

/* Whether the parts lie in the whole one after the other and are so long that plain copies serve
 * as well as a kernel: a GPU is idle between copies. */
static bool copies_serve(const mp_planner *p, const parts *all) {
    enum { LONG = 1 << 20, LONG_ON_GPU = 1 << 26 };
    const int64_t least = p->device->info.kind == MP_DEVICE_HOST ? LONG : LONG_ON_GPU;
    return all->rows == 1 && all->width / all->count >= least;
}

static mp_status copy_each(mp_planner *p, const parts *all) {
    for (int i = 0; i < all->count; i++) {
        const mp_ref place = mp_ref_at(all->whole, (uint64_t)all->list[i].column);
        const mp_ref own = all->list[i].ref;
        MP_TRY(mp_plan_copy(p, all->is_split ? own : place, all->is_split ? place : own,
                            (size_t)all->list[i].width));
    }
    return MP_OK;
}

/* One launch for parts [from, to) of the list. */
static mp_status launch(mp_planner *p, const parts *all, int from, int to) {
    const int64_t unit = all->unit;
    mp_concat_split_args args = {
        .width = all->width / unit, .parts = to - from, .is_split = all->is_split};
    mp_bind binds[K_PARTS_MAX + 1] = {MP_BIND(mp_concat_split_args, whole, all->whole)};
    while (args.stride * 2 < args.parts && args.parts > 1) {
        args.stride = args.stride == 0 ? 1 : args.stride * 2;
    }
    for (int i = from; i < to; i++) {
        k_part *made = &args.part[i - from];
        made->width = all->list[i].width / unit;
        made->pitch = all->list[i].pitch / unit;
        made->column = all->list[i].column / unit;
        made->start = args.count;
        args.count += made->width * all->rows;
        binds[i - from + 1] =
            (mp_bind){offsetof(mp_concat_split_args, part) + (size_t)(i - from) * sizeof(k_part) +
                          offsetof(k_part, data),
                      all->list[i].ref};
    }
    args.wide = args.count > INT32_MAX;
    for (int i = 0; i < args.parts && !args.wide; i++) {
        args.part[i].divider = mp_divider((uint32_t)args.part[i].width);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "parts_b%d", (int)unit * 8));
    const mp_grid grid =
        unit == 16 ? mp_plan_grid_stream(p, args.count, 1, 1) : mp_plan_grid(p, args.count, 1);
    return MP_LAUNCH_BOUND(p, kernel, grid, &args, sizeof args, binds, (size_t)args.parts + 1);
}

static mp_status move_parts(mp_planner *p, const parts *all) {
    if (all->count == 0 || all->rows == 0) {
        return MP_OK;
    }
    const part *one = &all->list[0];
    if (all->count == 1 && one->width == all->width && one->pitch == all->width) {
        const parts flat = {.whole = all->whole,
                            .is_split = all->is_split,
                            .list = &(const part){.ref = one->ref, .width = all->width * all->rows},
                            .count = 1};
        return copy_each(p, &flat);
    }
    if (copies_serve(p, all)) {
        return copy_each(p, all);
    }
    for (int from = 0; from < all->count; from += K_PARTS_MAX) {
        MP_TRY(launch(p, all, from, MP_MIN(from + K_PARTS_MAX, all->count)));
    }
    return MP_OK;
}

/* ---- the tensors ---- */

/* Bytes of a row of a tensor that is cut along `axis`. */
static int64_t row_bytes(const mp_shape *shape, int axis, size_t size) {
    return mp_shape_span(shape, axis, shape->rank) * (int64_t)size;
}

/* The widest unit that rows of `pitch` bytes, and those of all parts, consist of. */
static int64_t common_unit(const mp_planner *p, const part *list, int count, int64_t pitch,
                           size_t size) {
    int64_t unit = (int64_t)mp_move_unit(p, pitch, size);
    for (int i = 0; i < count; i++) {
        const int64_t row = (int64_t)mp_move_unit(p, list[i].width, size);
        const int64_t step = (int64_t)mp_move_unit(p, list[i].pitch, size);
        unit = list[i].width > 0 ? MP_MIN(MP_MIN(row, step), unit) : unit;
    }
    return unit;
}

/* The parts are `list`, of which those that need nothing to be done are left out here. `pitch`: of
 * the whole. */
static mp_status move_between(mp_planner *p, const mp_tensor *whole, int64_t pitch, int axis,
                              bool is_split, part *list, int count) {
    const size_t size = mp_dtype_size(whole->type);
    parts all = {.whole = is_split ? MP_IN(0) : MP_OUT(0),
                 .rows = mp_shape_span(&whole->shape, 0, axis),
                 .width = pitch > 0 ? pitch * (int64_t)size : row_bytes(&whole->shape, axis, size),
                 .is_split = is_split,
                 .list = list};
    all.unit = common_unit(p, list, count, all.width, size);
    int64_t column = 0;
    for (int i = 0; i < count; i++) {
        list[i].column = column;
        column += list[i].width;
        if (list[i].width > 0 && !list[i].is_there) {
            list[all.count++] = list[i];
        }
    }
    return move_parts(p, &all);
}

/* Rows that lie apart are those of the last dimension. */
static mp_status check_pitch(int64_t pitch, const mp_shape *shape, int axis) {
    return pitch == 0 || axis == shape->rank - 1
               ? MP_OK
               : MP_FAIL(INTERNAL, "rows that lie apart are cut along axis %d", axis);
}

static mp_status make_list(int count, part **out) {
    *out = calloc((size_t)count + 1, sizeof **out);
    return *out != NULL ? MP_OK
                        : MP_FAIL(OUT_OF_MEMORY,
                                  "cannot allocate host memory for a list of %d parts", count);
}

/* ---- Concat ---- */

mp_status mp_joined_shape(const mp_planner *p, int axis, mp_shape *shape) {
    const mp_tensor *first = &p->in[0];
    *shape = first->shape;
    for (int i = 1; i < p->in_count; i++) {
        mp_shape other = p->in[i].shape;
        const int64_t added = other.rank == shape->rank ? other.dim[axis] : 0;
        other.dim[axis] = shape->dim[axis];
        if (!mp_shape_equal(&other, shape) ||
            __builtin_add_overflow(shape->dim[axis], added, &shape->dim[axis])) {
            char a[MP_SHAPE_TEXT];
            char b[MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT, "inputs of shape %s and %s differ beside axis %d",
                           mp_shape_text(&first->shape, a), mp_shape_text(&p->in[i].shape, b),
                           axis);
        }
    }
    return MP_OK;
}

static mp_status plan_concat(mp_planner *p) {
    const mp_tensor *first = &p->in[0];
    const size_t size = mp_dtype_size(first->type);
    mp_shape shape;
    int axis = 0;
    part *list = NULL;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 1), first->shape.rank, "axis", &axis));
    MP_TRY(mp_joined_shape(p, axis, &shape));
    MP_TRY(mp_plan_output(p, 0, first->type, &shape));
    MP_TRY(make_list(p->in_count, &list));
    mp_status status = check_pitch(mp_plan_out_pitch(p, 0), &shape, axis);
    for (int i = 0; i < p->in_count && status == MP_OK; i++) {
        const int64_t width = row_bytes(&p->in[i].shape, axis, size);
        const int64_t pitch = p->in[i].pitch * (int64_t)size;
        list[i] = (part){.ref = MP_IN(i),
                         .width = width,
                         .pitch = MP_MAX(pitch, width),
                         .is_there = p->in[i].is_there};
        status = check_pitch(p->in[i].pitch, &shape, axis);
    }
    if (status == MP_OK) {
        const mp_tensor whole = {.type = first->type, .shape = shape};
        status = move_between(p, &whole, mp_plan_out_pitch(p, 0), axis, false, list, p->in_count);
    }
    free(list);
    return status;
}

/* ---- Split ---- */

/* Sizes along the axis: listed, or as even as num_outputs (or the outputs there are) allow. */
static mp_status split_size(const mp_planner *p, int64_t dim, const int64_t *listed, int count,
                            int i, int64_t *out) {
    const int64_t wanted = mp_node_int(p->node, "num_outputs", p->out_count);
    if (count >= 0) {
        if (i >= count || listed[i] < 0) {
            return MP_FAIL(INVALID_ARGUMENT, "split has no valid size for output %d", i);
        }
        *out = listed[i];
        return MP_OK;
    }
    if (wanted < 1 || wanted < p->out_count || wanted > INT32_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "num_outputs is %lld for %d outputs", (long long)wanted,
                       p->out_count);
    }
    if (dim % wanted != 0 && mp_node_attr(p->node, "num_outputs") == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld elements do not split evenly into %lld",
                       (long long)dim, (long long)wanted);
    }
    const int64_t even = MP_CEIL_DIV(dim, wanted);
    const int64_t left = dim - even * i;
    *out = left < 0 ? 0 : MP_MIN(left, even);
    return MP_OK;
}

/* Declares the outputs, each with its size along the axis from the list, or as even as may be. */
static mp_status declare_parts(mp_planner *p, int axis, part *list) {
    enum { LISTED_MAX = 1024 };
    const mp_tensor *x = &p->in[0];
    const int64_t dim = x->shape.dim[axis];
    int64_t listed[LISTED_MAX];
    int64_t used = 0;
    int count = 0;
    MP_TRY(mp_listed_ints(p, "split", 1, LISTED_MAX, listed, &count));
    for (int i = 0; i < p->out_count; i++) {
        mp_shape shape = x->shape;
        MP_TRY(split_size(p, dim, listed, count, i, &shape.dim[axis]));
        if (shape.dim[axis] > dim - used) {
            break;
        }
        MP_TRY(mp_plan_output(p, i, x->type, &shape));
        MP_TRY(check_pitch(mp_plan_out_pitch(p, i), &shape, axis));
        const int64_t width = row_bytes(&shape, axis, mp_dtype_size(x->type));
        list[i] = (part){.ref = MP_OUT(i),
                         .width = width,
                         .pitch = width,
                         .is_there = mp_plan_out_pitch(p, i) > 0};
        used += shape.dim[axis];
    }
    return used == dim
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "the sizes of the parts do not add up to %lld elements",
                         (long long)dim);
}

static mp_status plan_split(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int axis = 0;
    part *list = NULL;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->shape.rank, "axis", &axis));
    MP_TRY(make_list(p->out_count, &list));
    mp_status status = check_pitch(x->pitch, &x->shape, axis);
    if (status == MP_OK) {
        status = declare_parts(p, axis, list);
    }
    if (status == MP_OK) {
        status = move_between(p, x, x->pitch, axis, true, list, p->out_count);
    }
    free(list);
    return status;
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def axis_split[] = {{"axis", MP_ATTR_INT}, {"split", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def axis_outputs[] = {
    {"axis", MP_ATTR_INT}, {"num_outputs", MP_ATTR_INT}, {NULL, 0}};

#define ROW(name_, from, to, set, plan_, attrs_, host)                                      \
    {                                                                                       \
        .domain = "", .name = (name_), .since = (from), .until = (to), .host_in = (host),   \
        .types = {{"T", (set)}}, .apart_in = 1, .apart_out = UINT32_MAX, .attrs = (attrs_), \
        .plan = (plan_)                                                                     \
    }

static const mp_op ops[] = {
    {.domain = "",
     .name = "Concat",
     .since = 4,
     .until = 13,
     .types = {{"T", MP_ALL_TYPES}},
     .apart_in = UINT32_MAX,
     .apart_out = 1,
     .variadic = true,
     .attrs = axis_only,
     .plan = plan_concat},
    ROW("Split", 2, 11, MP_OLD_TYPES, plan_split, axis_split, 0),
    ROW("Split", 13, 13, MP_ALL_TYPES, plan_split, axis_only, 1u << 1),
    ROW("Split", 18, 18, MP_ALL_TYPES, plan_split, axis_outputs, 1u << 1),
};

const mp_op_family mp__family_concat_split = {"concat_split", ops, MP_COUNT_OF(ops)};
