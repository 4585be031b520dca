/* time_warp.c - DynamicTimeWarping: the cheapest way through a matrix of costs. How many elements
 * it has depends on data, so it is found first, and copied once that is known.
 * Kernel: signal/time_warp.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/signal_args.h"
#include "op/core/families.h"

/* What stays for the second plan: the length, and the path behind it. */
enum { PATH_AT = MP_ALIGNMENT };

static mp_status read_matrix(const mp_planner *p, int64_t *rows, int64_t *columns) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t most = INT32_MAX / 2; /* indices are of int32 */
    const bool fits = x->rank == 2 || (x->rank == 3 && x->dim[0] == 1);
    *rows = fits ? x->dim[x->rank - 2] : 0;
    *columns = fits ? x->dim[x->rank - 1] : 0;
    if (!fits || *rows > most || *columns > most) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input of shape %s; one matrix of at most %lld rows and columns is needed",
                       mp_shape_text(x, text), (long long)most);
    }
    return MP_OK;
}

static mp_status plan_time_warp(mp_planner *p) {
    mp_time_warp_args args = {.rows = 0};
    mp_ref kept = MP_NOWHERE, best = MP_NOWHERE, from = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(read_matrix(p, &args.rows, &args.columns));
    const int64_t most = args.rows + args.columns;
    MP_TRY(mp_plan_scratch(p, PATH_AT + (size_t)most * 2 * sizeof(int32_t), &kept));
    MP_TRY(mp_plan_read_back(p, kept, 1));
    if (args.rows == 0 || args.columns == 0) {
        return mp_plan_fill(p, kept, 0, 1, sizeof(int64_t));
    }
    MP_TRY(mp_plan_scratch_of(p, 3 * args.rows, MP_F32, &best));
    MP_TRY(mp_plan_scratch_of(p, args.rows * args.columns, MP_I8, &from));
    MP_TRY(mp_plan_kernel(p, &kernel, "time_warp"));
    mp_grid grid = {.blocks = 1, .lanes = 32};
    while (grid.lanes < 512 && grid.lanes < MP_MIN(args.rows, args.columns)) {
        grid.lanes *= 2;
    }
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_time_warp_args, cost, MP_IN(0)),
                     MP_BIND(mp_time_warp_args, best, best), MP_BIND(mp_time_warp_args, from, from),
                     MP_BIND(mp_time_warp_args, path, mp_ref_at(kept, PATH_AT)),
                     MP_BIND(mp_time_warp_args, length, kept));
}

static mp_status finish_time_warp(mp_planner *p, const int64_t *found) {
    int64_t rows = 0, columns = 0;
    MP_TRY(read_matrix(p, &rows, &columns));
    const int64_t most = rows + columns, length = found[0];
    if (length < 0 || length > most) {
        return MP_FAIL(DEVICE, "a path of %lld elements through %lld rows and %lld columns",
                       (long long)length, (long long)rows, (long long)columns);
    }
    const mp_shape shape = {.rank = 2, .dim = {2, length}};
    const size_t size = sizeof(int32_t), bytes = (size_t)length * size;
    MP_TRY(mp_plan_output(p, 0, MP_I32, &shape));
    const mp_ref path = mp_ref_at(MP_KEPT, PATH_AT + (uint64_t)(most - length) * size);
    MP_TRY(mp_plan_copy(p, MP_OUT(0), path, bytes));
    return mp_plan_copy(p, mp_ref_at(MP_OUT(0), bytes), mp_ref_at(path, (uint64_t)most * size),
                        bytes);
}

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "DynamicTimeWarping",
     .since = 1,
     .until = 1,
     .types = {{"F", MP_BIT(MP_F32)}, {"I", MP_BIT(MP_I32)}},
     .plan = plan_time_warp,
     .finish = finish_time_warp},
};

const mp_op_family mp__family_time_warp = {"time_warp", ops, MP_COUNT_OF(ops)};
