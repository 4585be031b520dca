/* det.c - Det: the determinant of each matrix.
 * Kernel: linear/det.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/linear_args.h"
#include "op/core/families.h"

static mp_status plan_det(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int rank = x->shape.rank;
    char text[MP_SHAPE_TEXT];
    if (rank < 2 || x->shape.dim[rank - 1] != x->shape.dim[rank - 2]) {
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s; square matrices are needed",
                       mp_shape_text(&x->shape, text));
    }
    mp_shape shape = x->shape;
    shape.rank = rank - 2;
    const mp_det_args args = {.matrices = mp_shape_count(&shape), .side = x->shape.dim[rank - 1]};
    mp_ref work = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    if (args.matrices == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, &x->shape, MP_F64, &work));
    MP_TRY(mp_plan_kernel(p, &kernel, "det_%s", mp_dtype_word(x->type)));
    const uint32_t lanes = args.side > 64 ? 256 : args.side > 16 ? 64 : 32;
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, args.matrices, lanes), args,
                     MP_BIND(mp_det_args, x, MP_IN(0)), MP_BIND(mp_det_args, work, work),
                     MP_BIND(mp_det_args, out, MP_OUT(0)));
}

static const mp_op ops[] = {
    {.domain = "",
     .name = "Det",
     .since = 11,
     .until = 22,
     .types = {{"T", MP_FLOATS}},
     .plan = plan_det},
};

const mp_op_family mp__family_det = {"det", ops, MP_COUNT_OF(ops)};
