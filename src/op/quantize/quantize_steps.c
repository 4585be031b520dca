/* quantize_steps.c - quantisation as steps of any operator's plan.
 *
 * A scale serves the whole tensor, a slice along an axis, or a block of neighbours along it; all
 * three are steps in the tensor of scales (k_scales). Quotients are rounded once, from float: the
 * attribute `precision` asks for no more than that.
 * Kernels: quantize/quantize.cu, quantize/dequantize.cu, rows/minmax.cu,
 * quantize/dynamic_quantize.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/quantize_steps.h"

/* ---- which scale is whose ---- */

static mp_status scales_along(const mp_shape *x, int axis, int64_t block, bool blocked,
                              k_scales *out) {
    const bool wide = mp_shape_count(x) > INT32_MAX;
    const int64_t inner = mp_shape_span(x, axis + 1, x->rank);
    const int64_t blocks = MP_CEIL_DIV(x->dim[axis], block);
    const bool along = inner == 1 && block % K_GROUP == 0 && x->dim[axis] % K_GROUP == 0;
    const bool is_grouped = blocked ? along : inner % K_GROUP == 0;
    *out = (k_scales){.shared = is_grouped ? K_SCALES_BY_GROUP : K_SCALES_BY_ELEMENT,
                      .wide = wide,
                      .axis = x->dim[axis],
                      .inner = inner,
                      .block = block,
                      .by_outer = blocked ? blocks * inner : 0,
                      .by_block = blocked ? inner : 1,
                      .by_inner = blocked ? 1 : 0};
    if (!wide && mp_shape_count(x) > 0) {
        out->divide_inner = mp_divider((uint32_t)inner);
        out->divide_axis = mp_divider((uint32_t)x->dim[axis]);
        out->divide_block = mp_divider((uint32_t)MP_MIN(block, INT32_MAX));
    }
    return MP_OK;
}

static mp_status misfit(const mp_tensor *scale, const mp_shape *x, int64_t block) {
    char text[MP_SHAPE_TEXT];
    char of[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "a scale of shape %s does not fit a tensor of shape %s with block_size %lld",
                   mp_shape_text(&scale->shape, text), mp_shape_text(x, of), (long long)block);
}

static mp_status blocked_scales(const mp_tensor *scale, const mp_shape *x, int axis, int64_t block,
                                k_scales *out) {
    mp_shape want = *x;
    want.dim[axis] = MP_CEIL_DIV(x->dim[axis], block);
    return mp_shape_equal(&scale->shape, &want) ? scales_along(x, axis, block, true, out)
                                                : misfit(scale, x, block);
}

mp_status mp_scales_read(const mp_planner *p, const mp_tensor *scale, const mp_tensor *zero,
                         const mp_shape *x, k_scales *out) {
    const int64_t block = mp_node_int(p->node, "block_size", 0);
    const int64_t asked = mp_node_int(p->node, "axis", 1);
    const int64_t count = mp_shape_count(&scale->shape);
    int axis = 0;
    if (zero != NULL && mp_shape_count(&zero->shape) != count) {
        char text[MP_SHAPE_TEXT];
        char of[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "a zero point of shape %s does not go with a scale of %s",
                       mp_shape_text(&zero->shape, text), mp_shape_text(&scale->shape, of));
    }
    if (block < 0) {
        return MP_FAIL(INVALID_ARGUMENT, "block_size is %lld; it is a count, or 0 for none",
                       (long long)block);
    }
    if (block == 0 && scale->shape.rank <= 1 && count == 1) {
        *out = (k_scales){.shared = K_SCALES_SINGLE};
        return MP_OK;
    }
    MP_TRY(mp_shape_axis(asked, x->rank, "axis", &axis));
    if (block > 0) {
        return blocked_scales(scale, x, axis, block, out);
    }
    return scale->shape.rank == 1 && count == x->dim[axis] ? scales_along(x, axis, 1, false, out)
                                                           : misfit(scale, x, block);
}

int32_t mp_scale_word(mp_dtype dtype) {
    switch (dtype) {
    case MP_F16:
        return K_SCALE_F16;
    case MP_BF16:
        return K_SCALE_BF16;
    case MP_F8E8M0:
        return K_SCALE_F8E8M0;
    case MP_F8E4M3FN:
        return K_SCALE_F8E4M3FN;
    default:
        return K_SCALE_F32;
    }
}

/* ---- the steps ---- */

mp_status mp_plan_convert(mp_planner *p, const mp_conversion *c, const k_scales *scales,
                          bool saturate) {
    const mp_kernel *kernel = NULL;
    const mp_quantize_args args = {.count = c->count,
                                   .scale_type = mp_scale_word(c->scale_type),
                                   .type =
                                       mp_narrow(c->narrow, (mp_narrowing){.saturate = saturate}),
                                   .scales = *scales};
    if (c->count == 0) {
        return MP_OK;
    }
    enum { BLOCKS = 8 }; /* of a multiprocessor: they stay, since each begins with the scale */
    const int packs = 16 / (int)mp_dtype_size(c->wide) * K_DEQUANTIZE_AT_ONCE;
    mp_grid grid = mp_plan_grid(p, c->count, c->back ? packs : K_GROUP);
    if (!c->back && scales->shared == K_SCALES_SINGLE) {
        grid.blocks =
            MP_MIN(grid.blocks, (uint32_t)MP_MAX(p->device->info.multiprocessors, 1) * BLOCKS);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "%s_%s", c->back ? "dequantize" : "quantize",
                          mp_dtype_word(c->wide)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_quantize_args, x, c->x),
                     MP_BIND(mp_quantize_args, scale, c->scale),
                     MP_BIND(mp_quantize_args, zero, c->zero),
                     MP_BIND(mp_quantize_args, out, c->out));
}

enum {
    RANGE_LANES = 512,
    /* Up to this many elements one block does it all, and other blocks find the range again. */
    RANGE_AT_ONCE = RANGE_LANES * 16,
};

mp_status mp_plan_dynamic_quantize(mp_planner *p, mp_ref x, int64_t count,
                                   const mp_quantized *out) {
    mp_dynamic_quantize_args args = {.count = count,
                                     .type = mp_narrow(MP_U8, (mp_narrowing){.saturate = true})};
    const int64_t each = (int64_t)RANGE_LANES * K_GROUP;
    const int64_t most = (int64_t)p->device->info.multiprocessors * 2;
    const int64_t wanted = MP_CEIL_DIV(count, each);
    const int64_t parts = MP_MIN(wanted, most);
    const mp_kernel *minmax = NULL;
    const mp_kernel *kernel = NULL;
    mp_ref ranges = MP_NOWHERE;
    MP_TRY(mp_plan_kernel(p, &kernel, "dynamic_quantize_f32"));
    if (count > RANGE_AT_ONCE) {
        args.parts = parts;
        MP_TRY(mp_plan_kernel(p, &minmax, "minmax_f32"));
        MP_TRY(mp_plan_scratch(p, (size_t)parts * 2 * sizeof(float), &ranges));
        MP_TRY(MP_LAUNCH(p, minmax, mp_plan_grid_rows(p, parts, RANGE_LANES), args,
                         MP_BIND(mp_dynamic_quantize_args, x, x),
                         MP_BIND(mp_dynamic_quantize_args, ranges, ranges)));
    }
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, args.parts > 0 ? wanted : parts, RANGE_LANES),
                     args, MP_BIND(mp_dynamic_quantize_args, x, x),
                     MP_BIND(mp_dynamic_quantize_args, ranges, ranges),
                     MP_BIND(mp_dynamic_quantize_args, out, out->values),
                     MP_BIND(mp_dynamic_quantize_args, scale, out->scale),
                     MP_BIND(mp_dynamic_quantize_args, zero, out->zero));
}
