/* view.c - operators that give the same elements another shape, and those that only look at the
 * shape. The output may be the input's own memory; then the one copy in the plan does nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/host_input.h"

/* ---- the same elements, another shape ---- */

static mp_status view_as(mp_planner *p, const mp_shape *shape) {
    const mp_tensor *x = &p->in[0];
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
    MP_TRY(mp_plan_output(p, 0, x->type, shape));
    return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
}

static mp_status plan_identity(mp_planner *p) {
    return view_as(p, &p->in[0].shape);
}

static mp_status plan_flatten(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t asked = mp_node_int(p->node, "axis", 1);
    const int64_t axis = asked < 0 ? asked + x->rank : asked;
    if (axis < 0 || axis > x->rank) {
        return MP_FAIL(INVALID_ARGUMENT, "axis %lld is outside [-%d, %d]", (long long)asked,
                       x->rank, x->rank);
    }
    const mp_shape shape = {
        .rank = 2, .dim = {mp_shape_span(x, 0, (int)axis), mp_shape_span(x, (int)axis, x->rank)}};
    return view_as(p, &shape);
}

/* -1 takes what is left; 0 takes the input's dimension unless allowzero says that it is a zero. */
static mp_status plan_reshape(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const bool zero_is_zero = mp_node_flag(p->node, "allowzero", false);
    mp_shape shape = {.rank = 0};
    int open = -1;
    int64_t known = 1;
    char from[MP_SHAPE_TEXT];
    MP_TRY(mp_listed_ints(p, "shape", 1, MP_RANK_MAX, shape.dim, &shape.rank));
    for (int d = 0; d < shape.rank; d++) {
        if (shape.dim[d] == 0 && !zero_is_zero) {
            if (d >= x->rank) {
                return MP_FAIL(INVALID_ARGUMENT, "shape has a 0 at %d, where X of shape %s ends", d,
                               mp_shape_text(x, from));
            }
            shape.dim[d] = x->dim[d];
        }
        if (shape.dim[d] == -1 && open < 0) {
            open = d;
            continue;
        }
        if (shape.dim[d] < 0 || __builtin_mul_overflow(known, shape.dim[d], &known)) {
            return MP_FAIL(INVALID_ARGUMENT, "shape has the value %lld at %d",
                           (long long)shape.dim[d], d);
        }
    }
    const int64_t count = mp_shape_count(x);
    if (open >= 0) {
        shape.dim[open] = known != 0 ? count / known : 0;
    }
    if (shape.rank < 0 || (open < 0 ? known : known * shape.dim[open]) != count) {
        char to[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s elements cannot take the shape %s",
                       mp_shape_text(x, from), shape.rank < 0 ? "?" : mp_shape_text(&shape, to));
    }
    return view_as(p, &shape);
}

static mp_status plan_squeeze(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    uint32_t axes = 0;
    int count = 0;
    MP_TRY(mp_listed_axes(p, "axes", 1, x->rank, &axes, &count));
    mp_shape shape = {.rank = 0};
    for (int d = 0; d < x->rank; d++) {
        const bool named = (axes & 1u << d) != 0;
        if (named && x->dim[d] != 1) {
            return MP_FAIL(INVALID_ARGUMENT, "axis %d has %lld elements and cannot be squeezed", d,
                           (long long)x->dim[d]);
        }
        if (!(count > 0 ? named : x->dim[d] == 1)) {
            shape.dim[shape.rank++] = x->dim[d];
        }
    }
    return view_as(p, &shape);
}

static mp_status plan_unsqueeze(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    int64_t listed[MP_RANK_MAX];
    uint32_t axes = 0;
    int count = 0;
    MP_TRY(mp_listed_ints(p, "axes", 1, MP_RANK_MAX, listed, &count));
    mp_shape shape = {.rank = x->rank + MP_MAX(count, 0)};
    if (count < 0 || shape.rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "%d axes would give a tensor of rank %d; ranks up to %d work",
                       count, shape.rank, MP_RANK_MAX);
    }
    MP_TRY(mp_listed_axes(p, "axes", 1, shape.rank, &axes, &count));
    for (int d = 0, from = 0; d < shape.rank; d++) {
        shape.dim[d] = (axes & 1u << d) != 0 ? 1 : x->dim[from++];
    }
    return view_as(p, &shape);
}

/* ---- shapes as values, in host memory ---- */

/* start and end are clamped to the dimensions there are. */
static int clamp_axis(int64_t axis, int rank) {
    const int64_t from_front = axis < 0 ? axis + rank : axis;
    return (int)(from_front < 0 ? 0 : MP_MIN(from_front, rank));
}

static mp_status plan_shape(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const int start = clamp_axis(mp_node_int(p->node, "start", 0), x->rank);
    const int end = clamp_axis(mp_node_int(p->node, "end", x->rank), x->rank);
    const int64_t count = end > start ? end - start : 0;
    const mp_shape shape = {.rank = 1, .dim = {count}};
    MP_TRY(mp_plan_output(p, 0, MP_I64, &shape));
    return mp_plan_host_output(p, 0, &x->dim[start], (size_t)count * sizeof(int64_t));
}

static mp_status plan_size(mp_planner *p) {
    const int64_t count = mp_shape_count(&p->in[0].shape);
    const mp_shape scalar = {.rank = 0};
    MP_TRY(mp_plan_output(p, 0, MP_I64, &scalar));
    return mp_plan_host_output(p, 0, &count, sizeof count);
}

/* ---- the rows ---- */

static const mp_attr_def axis[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def axes[] = {{"axes", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def shape_only[] = {{"shape", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def allowzero[] = {{"allowzero", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def start_end[] = {{"start", MP_ATTR_INT}, {"end", MP_ATTR_INT}, {NULL, 0}};

enum { EVERY = MP_ALL_TYPES | MP_NARROW }; /* nobody looks at the elements */

#define VIEW(op_name, from, to, set, function, ...)                                          \
    {                                                                                        \
        .domain = "", .name = (op_name), .since = (from), .until = (to), .plan = (function), \
        .types = {{"T", (set)}}, .view_of = 1, __VA_ARGS__                                   \
    }
#define LOOK(op_name, from, to, set, function, ...)                                          \
    {                                                                                        \
        .domain = "", .name = (op_name), .since = (from), .until = (to), .plan = (function), \
        .types = {{"T", (set)}, {"T1", MP_BIT(MP_I64)}}, .host_out = 1, __VA_ARGS__          \
    }

static const mp_op ops[] = {
    VIEW("Flatten", 1, 25, EVERY, plan_flatten, .attrs = axis),
    VIEW("Identity", 1, 13, MP_ALL_TYPES, plan_identity, .attrs = NULL),
    {.domain = "",
     .name = "Identity",
     .since = 14,
     .until = 25,
     .plan = plan_identity,
     .types = {{"V", EVERY}},
     .view_of = 1},
    VIEW("Reshape", 1, 1, MP_IEEE_FLOATS, plan_reshape, .attrs = shape_only),
    VIEW("Reshape", 5, 13, MP_ALL_TYPES, plan_reshape, .host_in = 1u << 1),
    VIEW("Reshape", 14, 25, EVERY, plan_reshape, .host_in = 1u << 1, .attrs = allowzero),
    VIEW("Squeeze", 1, 11, MP_OLD_TYPES, plan_squeeze, .attrs = axes),
    VIEW("Squeeze", 13, 25, EVERY, plan_squeeze, .host_in = 1u << 1),
    VIEW("Unsqueeze", 1, 11, MP_OLD_TYPES, plan_unsqueeze, .attrs = axes),
    VIEW("Unsqueeze", 13, 25, EVERY, plan_unsqueeze, .host_in = 1u << 1),
    LOOK("Shape", 1, 13, MP_ALL_TYPES, plan_shape, .attrs = NULL),
    LOOK("Shape", 15, 25, EVERY, plan_shape, .attrs = start_end),
    LOOK("Size", 1, 25, EVERY, plan_size, .attrs = NULL),
};

const mp_op_family mp__family_view = {"view", ops, MP_COUNT_OF(ops)};
