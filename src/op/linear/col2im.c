/* col2im.c - Col2Im: an image of any rank out of columns of blocks, which may overlap.
 * Kernel: linear/col2im.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/linear_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <string.h>

enum { SPATIAL_MAX = K_RANK_MAX - 2 };

/* How many axes the image has is the length of image_shape. */
static mp_status accept_col2im(const mp_planner *p) {
    const mp_shape *image = &p->in[1].shape;
    return image->rank != 1 || image->dim[0] <= SPATIAL_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "an image of %lld axes; up to %d are supported",
                         (long long)image->dim[0], SPATIAL_MAX);
}

/* An attribute with one value of `least` or more an axis, `fallback` where it is absent. */
static mp_status read_each(const mp_planner *p, const char *name, int count, int64_t least,
                           int64_t fallback, int64_t *out) {
    int given = 0;
    MP_TRY(mp_listed_ints(p, name, -1, 2 * SPATIAL_MAX, out, &given));
    for (int d = 0; d < count; d++) {
        out[d] = given < 0 ? fallback : out[d];
        if ((given >= 0 && given != count) || out[d] < least || out[d] > INT32_MAX) {
            return MP_FAIL(INVALID_ARGUMENT, "%s has %d values for %d, and %lld among them", name,
                           given, count, (long long)out[d]);
        }
    }
    return MP_OK;
}

/* How many blocks fit along axis d. */
static mp_status count_blocks(mp_col2im_args *args, int d, int64_t behind) {
    const int64_t span = args->dilation[d] * (args->kernel[d] - 1) + 1;
    const int64_t room = args->image[d] + args->pad[d] + behind - span;
    args->across[d] = room < 0 ? 0 : room / args->stride[d] + 1;
    return __builtin_mul_overflow(args->blocks, args->across[d], &args->blocks) ||
                   __builtin_mul_overflow(args->taps, args->kernel[d], &args->taps)
               ? MP_FAIL(INVALID_ARGUMENT, "block_shape gives more elements than can be counted")
               : MP_OK;
}

static mp_status read_geometry(const mp_planner *p, mp_col2im_args *args) {
    int64_t pads[2 * SPATIAL_MAX];
    int64_t steps[2 * SPATIAL_MAX];
    int64_t dilations[2 * SPATIAL_MAX];
    int rank = 0;
    int block_rank = 0;
    MP_TRY(mp_host_ints(p, 1, "image_shape", SPATIAL_MAX, args->image, &rank));
    MP_TRY(mp_host_ints(p, 2, "block_shape", SPATIAL_MAX, args->kernel, &block_rank));
    if (rank < 1 || rank != block_rank) {
        return MP_FAIL(INVALID_ARGUMENT, "image_shape has %d values and block_shape %d", rank,
                       block_rank);
    }
    MP_TRY(read_each(p, "pads", 2 * rank, 0, 0, pads));
    MP_TRY(read_each(p, "strides", rank, 1, 1, steps));
    MP_TRY(read_each(p, "dilations", rank, 1, 1, dilations));
    memcpy(args->pad, pads, (size_t)rank * sizeof *pads);
    memcpy(args->stride, steps, (size_t)rank * sizeof *steps);
    memcpy(args->dilation, dilations, (size_t)rank * sizeof *dilations);
    args->rank = rank;
    args->taps = 1;
    args->blocks = 1;
    for (int d = 0; d < rank; d++) {
        if (args->image[d] < 0 || args->image[d] > INT32_MAX || args->kernel[d] < 1 ||
            args->kernel[d] > INT32_MAX) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "image_shape is %lld and block_shape %lld along axis %d",
                           (long long)args->image[d], (long long)args->kernel[d], d);
        }
        MP_TRY(count_blocks(args, d, pads[rank + d]));
    }
    return MP_OK;
}

static mp_status plan_col2im(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_col2im_args args = {.count = 0};
    MP_TRY(read_geometry(p, &args));
    if (x->shape.rank != 3 || x->shape.dim[1] % args.taps != 0 || x->shape.dim[2] != args.blocks) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input of shape %s where blocks of %lld elements, %lld of them, are needed",
                       mp_shape_text(&x->shape, text), (long long)args.taps,
                       (long long)args.blocks);
    }
    mp_shape shape = {.rank = args.rank + 2, .dim = {x->shape.dim[0], x->shape.dim[1] / args.taps}};
    memcpy(&shape.dim[2], args.image, (size_t)args.rank * sizeof *args.image);
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    args.count = mp_shape_count(&shape);
    if (args.count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "col2im_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_col2im_args, x, MP_IN(0)), MP_BIND(mp_col2im_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {
    {"dilations", MP_ATTR_INTS}, {"pads", MP_ATTR_INTS}, {"strides", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "Col2Im",
     .since = 18,
     .until = 18,
     .host_in = 1u << 1 | 1u << 2,
     .types = {{"T", MP_FLOATS}},
     .attrs = attrs,
     .plan = plan_col2im,
     .accept = accept_col2im},
};

const mp_op_family mp__family_col2im = {"col2im", ops, MP_COUNT_OF(ops)};
