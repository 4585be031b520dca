/* inverse.c - Inverse: the inverse of each matrix. One that has none gives NaN; ONNX Runtime's own
 * provider for CUDA ends the run there, for which it waits for the device in each run.
 * Kernel: linear/inverse.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/linear_args.h"
#include "op/core/families.h"

/* Elements are counted in 31 bits. */
enum { SIDE_MAX = 46340 };

static mp_status check_square(const mp_shape *x) {
    const int rank = x->rank;
    char text[MP_SHAPE_TEXT];
    return rank >= 2 && x->dim[rank - 1] == x->dim[rank - 2] && x->dim[rank - 1] <= SIDE_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "X of shape %s; square matrices of at most %d rows are needed",
                         mp_shape_text(x, text), SIDE_MAX);
}

/* Bytes that a block works on: the matrix, and three numbers for each row of it. */
static size_t work_size(mp_dtype type, int64_t side) {
    const size_t number = type == MP_F64 ? sizeof(double) : sizeof(float), rows = (size_t)side;
    const size_t size = rows * rows * number + rows * (number + 2 * sizeof(int32_t));
    return MP_CEIL_DIV(size, 16) * 16;
}

static uint32_t lanes_for(int64_t side) {
    return side > 64 ? 512 : side > 16 ? 128 : 32;
}

static mp_status plan_inverse(mp_planner *p) {
    enum { SHARED_MAX = 48 << 10, BLOCKS = 4 };
    const mp_tensor *x = &p->in[0];
    MP_TRY(check_square(&x->shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const int64_t side = x->shape.dim[x->shape.rank - 1];
    mp_inverse_args args = {.matrices = mp_shape_span(&x->shape, 0, x->shape.rank - 2),
                            .side = side,
                            .work_size = (int64_t)work_size(x->type, side),
                            .by_side = mp_divider((uint32_t)side)};
    const size_t room = MP_MIN(p->device->info.shared_bytes_max, (size_t)SHARED_MAX);
    mp_ref work = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    mp_grid grid = mp_plan_grid_rows(p, args.matrices, lanes_for(side));
    if ((size_t)args.work_size <= room) {
        grid.shared_bytes = (uint32_t)args.work_size;
    } else {
        const int64_t most = (int64_t)p->device->info.multiprocessors * BLOCKS;
        grid.blocks = (uint32_t)MP_MIN((int64_t)grid.blocks, most);
        MP_TRY(mp_plan_scratch_of(p, (int64_t)grid.blocks * args.work_size, MP_U8, &work));
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "inverse_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_inverse_args, x, MP_IN(0)),
                     MP_BIND(mp_inverse_args, work, work),
                     MP_BIND(mp_inverse_args, out, MP_OUT(0)));
}

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "Inverse",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_inverse},
};

const mp_op_family mp__family_inverse = {"inverse", ops, MP_COUNT_OF(ops)};
