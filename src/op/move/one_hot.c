/* one_hot.c - OneHot.
 * Kernel: move/one_hot.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"

enum { DEPTHS = MP_INTS | 1u << MP_F32 | 1u << MP_F64, INDICES = DEPTHS | 1u << MP_F16 };

/* The depth, one element of a type in DEPTHS on the host. */
static mp_status read_depth(const mp_tensor *depth, int64_t *out) {
    const void *data = (const void *)depth->data;
    double real = 0; /* holds every integer of 32 bits */
    if (mp_shape_count(&depth->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "depth must be one element, not of shape %s",
                       mp_shape_text(&depth->shape, text));
    }
    switch ((int)depth->type) {
    case MP_U8:
        real = *(const uint8_t *)data;
        break;
    case MP_I8:
        real = *(const int8_t *)data;
        break;
    case MP_U16:
        real = *(const uint16_t *)data;
        break;
    case MP_I16:
        real = *(const int16_t *)data;
        break;
    case MP_U32:
        real = *(const uint32_t *)data;
        break;
    case MP_I32:
        real = *(const int32_t *)data;
        break;
    case MP_F32:
        real = (double)*(const float *)data;
        break;
    case MP_F64:
        real = *(const double *)data;
        break;
    default: /* 64 bits; more than INT64_MAX is negative here, and too many anyway */
        *out = *(const int64_t *)data;
    }
    if (depth->type != MP_I64 && depth->type != MP_U64) {
        *out = real >= 1 && real < 0x1p62 ? (int64_t)real : -1;
    }
    return *out > 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "depth must be positive; it is %lld", (long long)*out);
}

static mp_status plan_one_hot(mp_planner *p) {
    const mp_tensor *indices = &p->in[0];
    const mp_tensor *values = &p->in[2];
    const int rank = indices->shape.rank + 1;
    int axis = 0;
    mp_shape shape = {.rank = rank};
    mp_one_hot_args args = {.index_type = (int32_t)indices->type};
    char text[MP_SHAPE_TEXT];
    if (rank > MP_RANK_MAX || values->shape.rank != 1 || values->shape.dim[0] != 2) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "values of shape %s for a result of rank %d; two values and a rank up to %d "
                       "are needed",
                       mp_shape_text(&values->shape, text), rank, MP_RANK_MAX);
    }
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), rank, "axis", &axis));
    MP_TRY(read_depth(&p->in[1], &args.depth));
    for (int d = 0, from = 0; d < rank; d++) {
        shape.dim[d] = d == axis ? args.depth : indices->shape.dim[from++];
    }
    MP_TRY(mp_plan_output(p, 0, values->type, &shape));
    args.count = mp_shape_count(&shape);
    if (args.count == 0) {
        return MP_OK;
    }
    const int64_t inner = mp_shape_span(&shape, axis + 1, rank);
    const mp_shape space = {.rank = 3, .dim = {mp_shape_span(&shape, 0, axis), args.depth, inner}};
    int64_t stride[2][MP_RANK_MAX] = {{inner, 0, 1}, {0, 1, 0}};
    MP_TRY(mp_layout_make(&space, stride, 2, &args.layout));
    args.in_rows = inner == 1;
    if (!args.layout.wide) {
        args.by_depth = mp_divider((uint32_t)args.depth);
    }
    const int size = (int)mp_dtype_size(values->type);
    const int run = !args.in_rows ? 1 : size <= 4 ? 4 : 16 / size; /* as in vector.h */
    const mp_grid grid = args.in_rows ? mp_plan_grid_stream(p, args.count, run, K_STREAM_AHEAD)
                                      : mp_plan_grid(p, args.count, run);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "one_hot_b%d", size * 8));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_one_hot_args, indices, MP_IN(0)),
                     MP_BIND(mp_one_hot_args, values, MP_IN(2)),
                     MP_BIND(mp_one_hot_args, out, MP_OUT(0)));
}

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "OneHot",
     .since = 9,
     .until = 11,
     .host_in = 1u << 1,
     .types = {{"T1", INDICES}, {"T2", DEPTHS}, {"T3", MP_OLD_TYPES}},
     .attrs = axis_only,
     .plan = plan_one_hot},
};

const mp_op_family mp__family_one_hot = {"one_hot", ops, MP_COUNT_OF(ops)};
