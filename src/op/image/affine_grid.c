/* affine_grid.c - AffineGrid: the grid for GridSample that an affine map of the image makes.
 * Kernel: image/affine_grid.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/sample_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

static mp_status plan_affine_grid(mp_planner *p) {
    const mp_shape *theta = &p->in[0].shape;
    const mp_kernel *kernel = NULL;
    int64_t size[5] = {0};
    int given = 0;
    MP_TRY(mp_host_ints(p, 1, "size", 5, size, &given));
    const int dims = given - 2;
    if ((dims != 2 && dims != 3) || theta->rank != 3 || theta->dim[0] != size[0] ||
        theta->dim[1] != dims || theta->dim[2] != dims + 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "theta of shape %s does not fit a size of %d values that "
                       "begins with %lld",
                       mp_shape_text(theta, text), given, (long long)size[0]);
    }
    mp_affine_grid_args args = {.size = {1, 1, 1},
                                .dims = dims,
                                .align_corners = mp_node_int(p->node, "align_corners", 0) != 0};
    mp_shape out = {.rank = dims + 2, .dim = {size[0]}};
    for (int d = 0; d < dims; d++) {
        out.dim[1 + d] = size[2 + d];
        args.size[dims - 1 - d] = size[2 + d];
    }
    out.dim[dims + 1] = dims;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    args.count = mp_shape_span(&out, 0, dims + 1);
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "affine_grid_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_affine_grid_args, theta, MP_IN(0)),
                     MP_BIND(mp_affine_grid_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"align_corners", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "AffineGrid",
     .since = 20,
     .until = 20,
     .types = {{"T1", MP_FLOATS}, {"T2", MP_BIT(MP_I64)}},
     .host_in = 1u << 1,
     .attrs = attrs,
     .plan = plan_affine_grid},
};

const mp_op_family mp__family_affine_grid = {"affine_grid", ops, MP_COUNT_OF(ops)};
