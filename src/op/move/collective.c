/* collective.c - AllReduce, AllGather and AllToAll: what the ranks, processes with a device each,
 * do together. com.microsoft has them in builds of ONNX Runtime with NCCL alone; the provider
 * brings schemas of its own, which have bfloat16 besides (ep/placement/brought.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/move/strided_copy.h"

#include <inttypes.h>

static mp_status plan_all_reduce(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_collective what = {
        .kind = MP_ALL_REDUCE, .type = x->type, .count = mp_shape_count(&x->shape)};
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return what.count == 0 ? MP_OK : mp_plan_collective(p, &what, MP_IN(0), MP_OUT(0));
}

static mp_status read_group(const mp_planner *p, int64_t *out) {
    *out = mp_node_int(p->node, "group_size", 1);
    return *out >= 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "group_size is %" PRId64 "; it counts ranks", *out);
}

static mp_status plan_all_to_all(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_collective what = {
        .kind = MP_ALL_TO_ALL, .type = x->type, .count = mp_shape_count(&x->shape)};
    MP_TRY(read_group(p, &what.group));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return what.count == 0 ? MP_OK : mp_plan_collective(p, &what, MP_IN(0), MP_OUT(0));
}

/* From [group, before, behind], where the parts are, to [before, group, behind]. */
static mp_status interleave(mp_planner *p, mp_ref parts, size_t size, int64_t group, int64_t before,
                            int64_t behind) {
    const mp_shape space = {.rank = 3, .dim = {before, group, behind}};
    const mp_strided source = {.ref = parts, .stride = {behind, before * behind, 1}};
    const mp_strided target = {.ref = MP_OUT(0), .stride = {group * behind, behind, 1}};
    return mp_plan_strided_copy(p, &space, size, &source, &target);
}

static mp_status plan_all_gather(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_collective what = {
        .kind = MP_ALL_GATHER, .type = x->type, .count = mp_shape_count(&x->shape)};
    mp_shape shape = x->shape;
    int axis = 0;
    mp_ref parts = MP_OUT(0);
    MP_TRY(read_group(p, &what.group));
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), x->shape.rank, "axis", &axis));
    if (__builtin_mul_overflow(shape.dim[axis], what.group, &shape.dim[axis])) {
        return MP_FAIL(INVALID_ARGUMENT, "dimension %d of %" PRId64 " by %" PRId64 " ranks", axis,
                       x->shape.dim[axis], what.group);
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    if (what.count == 0) {
        return MP_OK;
    }
    const int64_t before = mp_shape_span(&x->shape, 0, axis);
    const int64_t behind = mp_shape_span(&x->shape, axis, x->shape.rank);
    if (before > 1) {
        MP_TRY(mp_plan_scratch_shape(p, &shape, x->type, &parts));
    }
    MP_TRY(mp_plan_collective(p, &what, MP_IN(0), parts));
    return before > 1 ? interleave(p, parts, mp_dtype_size(x->type), what.group, before, behind)
                      : MP_OK;
}

enum { MOVED = MP_FLOATS | 1u << MP_I64 | 1u << MP_BOOL };

static const mp_attr_def gather_attrs[] = {
    {"axis", MP_ATTR_INT}, {"group_size", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def exchange_attrs[] = {{"group_size", MP_ATTR_INT}, {NULL, 0}};

#define ROW(from, op, set, rows, function)                                               \
    {                                                                                    \
        .domain = (from), .name = (op), .since = 1, .until = 1, .types = {{"T", (set)}}, \
        .attrs = (rows), .plan = (function)                                              \
    }
#define ROWS(from)                                                    \
    ROW(from, "AllReduce", MP_FLOATS, NULL, plan_all_reduce),         \
        ROW(from, "AllGather", MOVED, gather_attrs, plan_all_gather), \
        ROW(from, "AllToAll", MOVED, exchange_attrs, plan_all_to_all)

static const mp_op ops[] = {ROWS("ai.millpond"), ROWS("com.microsoft")};

const mp_op_family mp__family_collective = {"collective", ops, MP_COUNT_OF(ops)};
