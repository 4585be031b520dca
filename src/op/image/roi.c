/* roi.c - RoiAlign and MaxRoiPool: regions of images pooled to one size.
 * Kernels: image/roi_align.cu, image/roi_pool.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/window_args.h"
#include "op/core/families.h"

#include <math.h>
#include <string.h>

/* Checks the shapes and declares the output [regions, channels, out_h, out_w]. */
static mp_status declare(mp_planner *p, int columns, int64_t out_h, int64_t out_w,
                         mp_roi_space *space) {
    const mp_shape *x = &p->in[0].shape, *rois = &p->in[1].shape;
    char x_text[MP_SHAPE_TEXT];
    char rois_text[MP_SHAPE_TEXT];
    if (x->rank != 4 || rois->rank != 2 || rois->dim[1] != columns) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s must have rank 4, rois of shape %s must be [regions, %d]",
                       mp_shape_text(x, x_text), mp_shape_text(rois, rois_text), columns);
    }
    if (out_h < 1 || out_w < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "regions cannot be pooled to %lld x %lld",
                       (long long)out_h, (long long)out_w);
    }
    const mp_shape out = {.rank = 4, .dim = {rois->dim[0], x->dim[1], out_h, out_w}};
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    *space = (mp_roi_space){.count = mp_shape_count(&out),
                            .batches = mp_shape_count(x) > 0 ? x->dim[0] : 0, /* with pixels */
                            .channels = x->dim[1],
                            .in_h = x->dim[2],
                            .in_w = x->dim[3],
                            .out_h = out_h,
                            .out_w = out_w};
    return MP_OK;
}

static mp_status read_scale(const mp_node *node, float *out) {
    *out = mp_node_float(node, "spatial_scale", 1);
    return isfinite(*out) ? MP_OK
                          : MP_FAIL(INVALID_ARGUMENT,
                                    "spatial_scale %g is not a number to scale by", (double)*out);
}

static mp_status read_word(const mp_node *node, const char *name, const char *usual,
                           const char *other, bool *is_other) {
    const char *text = mp_node_string(node, name, usual);
    *is_other = strcmp(text, other) == 0;
    return *is_other || strcmp(text, usual) == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s '%s' must be '%s' or '%s'", name, text, usual,
                         other);
}

/* ---- RoiAlign ---- */

static mp_status plan_roi_align(mp_planner *p) {
    const mp_shape *rois = &p->in[1].shape, *batch = &p->in[2].shape;
    const mp_node *node = p->node;
    const int64_t samples = mp_node_int(node, "sampling_ratio", 0);
    bool largest = false, without_half = node->version < 16;
    mp_roi_align_args args = {.samples = 0};
    MP_TRY(read_scale(node, &args.scale));
    MP_TRY(read_word(node, "mode", "avg", "max", &largest));
    if (!without_half) {
        MP_TRY(read_word(node, "coordinate_transformation_mode", "half_pixel", "output_half_pixel",
                         &without_half));
    }
    if (samples < 0 || samples > K_ROI_SAMPLES_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "sampling_ratio %lld must be 0 to %d", (long long)samples,
                       K_ROI_SAMPLES_MAX);
    }
    MP_TRY(declare(p, 4, mp_node_int(node, "output_height", 1),
                   mp_node_int(node, "output_width", 1), &args.space));
    if (batch->rank != 1 || batch->dim[0] != rois->dim[0]) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "batch_indices of shape %s do not name the images of %lld "
                       "regions",
                       mp_shape_text(batch, text), (long long)rois->dim[0]);
    }
    const mp_kernel *kernel = NULL;
    args.samples = (int32_t)samples;
    args.half_pixel = !without_half;
    args.largest = largest;
    if (args.space.count == 0) {
        return MP_OK;
    }
    args.pieces = MP_CEIL_DIV(args.space.channels, K_ROI_PLANES);
    args.count = rois->dim[0] * args.pieces * args.space.out_h * args.space.out_w;
    args.wide = args.count > INT32_MAX;
    if (!args.wide) {
        args.by_out_w = mp_divider((uint32_t)args.space.out_w);
        args.by_out_h = mp_divider((uint32_t)args.space.out_h);
        args.by_pieces = mp_divider((uint32_t)args.pieces);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "roi_align_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_roi_align_args, x, MP_IN(0)),
        MP_BIND(mp_roi_align_args, rois, MP_IN(1)), MP_BIND(mp_roi_align_args, batch, MP_IN(2)),
        MP_BIND(mp_roi_align_args, out, MP_OUT(0)));
}

/* ---- MaxRoiPool ---- */

static mp_status plan_roi_pool(mp_planner *p) {
    const mp_attr *pooled = mp_node_attr(p->node, "pooled_shape");
    const mp_kernel *kernel = NULL;
    if (pooled == NULL || pooled->count != 2) {
        return MP_FAIL(INVALID_ARGUMENT, "pooled_shape must have two values, not %zu",
                       pooled != NULL ? pooled->count : 0);
    }
    mp_roi_pool_args args = {.scale = 1};
    MP_TRY(read_scale(p->node, &args.scale));
    MP_TRY(declare(p, 5, pooled->ints[0], pooled->ints[1], &args.space));
    if (args.space.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "roi_pool_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.space.count, 1), args,
                     MP_BIND(mp_roi_pool_args, x, MP_IN(0)),
                     MP_BIND(mp_roi_pool_args, rois, MP_IN(1)),
                     MP_BIND(mp_roi_pool_args, out, MP_OUT(0)));
}

/* ---- the rows ---- */

static const mp_attr_def align_attrs[] = {{"coordinate_transformation_mode", MP_ATTR_STRING},
                                          {"mode", MP_ATTR_STRING},
                                          {"output_height", MP_ATTR_INT},
                                          {"output_width", MP_ATTR_INT},
                                          {"sampling_ratio", MP_ATTR_INT},
                                          {"spatial_scale", MP_ATTR_FLOAT},
                                          {NULL, 0}};
static const mp_attr_def pool_attrs[] = {
    {"pooled_shape", MP_ATTR_INTS}, {"spatial_scale", MP_ATTR_FLOAT}, {NULL, 0}};

#define ALIGN(from, to, floats)                                                    \
    {                                                                              \
        .domain = "", .name = "RoiAlign", .since = (from), .until = (to),          \
        .types = {{"T1", (floats)}, {"T2", MP_BIT(MP_I64)}}, .attrs = align_attrs, \
        .plan = plan_roi_align                                                     \
    }
#define POOL(from, to, floats)                                                 \
    {                                                                          \
        .domain = "", .name = "MaxRoiPool", .since = (from), .until = (to),    \
        .types = {{"T", (floats)}}, .attrs = pool_attrs, .plan = plan_roi_pool \
    }

static const mp_op ops[] = {
    ALIGN(10, 16, MP_IEEE_FLOATS),
    ALIGN(22, 22, MP_FLOATS),
    POOL(1, 1, MP_IEEE_FLOATS),
    POOL(22, 22, MP_FLOATS),
};

const mp_op_family mp__family_roi = {"roi", ops, MP_COUNT_OF(ops)};
