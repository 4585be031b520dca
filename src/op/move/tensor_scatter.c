/* tensor_scatter.c - TensorScatter: writes the newest keys or values into a cache, in place where
 * the cache is not used otherwise.
 * Kernel: move/tensor_scatter.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"
#include "op/move/strided_copy.h"

#include <string.h>

static mp_status check_shapes(const mp_planner *p, int axis) {
    const mp_shape *cache = &p->in[0].shape;
    const mp_tensor *write = mp_plan_in(p, 2);
    mp_shape update = p->in[1].shape;
    char a[MP_SHAPE_TEXT];
    char b[MP_SHAPE_TEXT];
    const bool fits = update.rank == cache->rank && update.dim[axis] <= cache->dim[axis];
    update.dim[axis] = cache->dim[axis];
    if (axis == 0 || !fits || !mp_shape_equal(&update, cache)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "an update of shape %s does not fit into a cache of shape %s along axis %d",
                       mp_shape_text(&p->in[1].shape, b), mp_shape_text(cache, a), axis);
    }
    if (write != NULL && (write->shape.rank != 1 || write->shape.dim[0] != cache->dim[0])) {
        return MP_FAIL(INVALID_ARGUMENT, "write_indices of shape %s for a batch of %lld",
                       mp_shape_text(&write->shape, b), (long long)cache->dim[0]);
    }
    return MP_OK;
}

static mp_status read_mode(const mp_node *node, int32_t *is_circular) {
    const char *mode = mp_node_string(node, "mode", "linear");
    *is_circular = strcmp(mode, "circular") == 0;
    return *is_circular || strcmp(mode, "linear") == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "mode '%s' is not known; use linear or circular", mode);
}

/* Both tensors as [batch, heads and the like, along the axis, units of what lies behind]. */
static mp_status write_update(mp_planner *p, int axis, mp_tensor_scatter_args *args) {
    const mp_shape *cache = &p->in[0].shape;
    const mp_shape *update = &p->in[1].shape;
    const size_t size = mp_dtype_size(p->in[0].type);
    const int64_t run = mp_shape_span(cache, axis + 1, cache->rank) * (int64_t)size;
    const size_t unit = mp_move_unit(p, run, size);
    const int64_t inner = run / (int64_t)unit;
    const mp_shape space = {
        .rank = 4,
        .dim = {update->dim[0], mp_shape_span(update, 1, axis), update->dim[axis], inner}};
    int64_t stride[3][MP_RANK_MAX] = {{0}, {1}, {0, 0, 1}};
    args->count = mp_shape_count(&space);
    args->length = cache->dim[axis];
    args->step = inner;
    stride[0][3] = 1;
    stride[0][2] = inner;
    stride[0][1] = args->length * inner;
    stride[0][0] = space.dim[1] * stride[0][1];
    MP_TRY(mp_layout_make(&space, stride, 3, &args->layout));
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "tensor_scatter_b%zu", unit * 8));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args->count, 1), *args,
        MP_BIND(mp_tensor_scatter_args, update, MP_IN(1)),
        MP_BIND(mp_tensor_scatter_args, write, mp_plan_in(p, 2) != NULL ? MP_IN(2) : MP_NOWHERE),
        MP_BIND(mp_tensor_scatter_args, out, MP_OUT(0)));
}

static mp_status plan_tensor_scatter(mp_planner *p) {
    const mp_tensor *cache = &p->in[0];
    mp_tensor_scatter_args args = {.count = 0};
    size_t bytes = 0;
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -2), cache->shape.rank, "axis", &axis));
    MP_TRY(read_mode(p->node, &args.is_circular));
    MP_TRY(check_shapes(p, axis));
    MP_TRY(mp_plan_output(p, 0, cache->type, &cache->shape));
    MP_TRY(mp_shape_bytes(&cache->shape, cache->type, &bytes));
    MP_TRY(mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes));
    return mp_shape_count(&p->in[1].shape) == 0 ? MP_OK : write_update(p, axis, &args);
}

static const mp_attr_def attrs[] = {{"axis", MP_ATTR_INT}, {"mode", MP_ATTR_STRING}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "TensorScatter",
     .since = 24,
     .until = 24,
     .types = {{"T", MP_ALL_TYPES | MP_FLOAT8}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .attrs = attrs,
     .plan = plan_tensor_scatter},
};

const mp_op_family mp__family_tensor_scatter = {"tensor_scatter", ops, MP_COUNT_OF(ops)};
