/* group_pixels.c - see group_pixels.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/group_pixels.h"

#include "op/linear/epilogue_steps.h"
#include "op/linear/product_steps.h"

/* Channels of a group; calls that many images of many groups become with channels first. */
enum { WIDTH_MIN = 8, CALLS_MAX = 8 };

bool mp_conv_is_of_pixels(const mp_conv *conv) {
    bool fits = !conv->transposed;
    for (int d = 0; d < conv->spatial; d++) {
        fits = fits && conv->kernel[d] == 1 && conv->stride[d] == 1 && conv->pad_begin[d] == 0 &&
               conv->pad_end[d] == 0;
    }
    return fits;
}

int64_t mp_conv_pixels(const mp_conv *conv) {
    int64_t pixels = 1;
    for (int d = 0; d < conv->spatial; d++) {
        pixels *= conv->in[d];
    }
    return pixels;
}

bool mp_group_pixels_takes(const mp_conv *conv) {
    return conv->groups > 1 && mp_conv_is_of_pixels(conv) &&
           conv->in_channels / conv->groups >= WIDTH_MIN &&
           conv->out_channels / conv->groups >= WIDTH_MIN &&
           (conv->channels_last || MP_MIN(conv->batch, conv->groups) <= CALLS_MAX);
}

static mp_gemm product_of(const mp_planner *p, const mp_conv *conv) {
    return (mp_gemm){.type = conv->type,
                     .tf32 = conv->tf32,
                     .k = conv->in_channels / conv->groups,
                     .alpha = 1,
                     .tune = p->node->options.tune,
                     .tune_ms = p->node->options.tune_ms};
}

/* [pixels, width in] x [width in, width out] for each group: rows have the channels of all. */
static mp_status product_last(mp_planner *p, const mp_conv *conv,
                              const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_gemm gemm = product_of(p, conv);
    gemm.trans_b = true;
    gemm.m = conv->batch * mp_conv_pixels(conv);
    gemm.n = gemm.stride_c = conv->out_channels / conv->groups;
    gemm.lda = conv->in_channels;
    gemm.ldb = gemm.stride_a = gemm.k;
    gemm.ldc = conv->out_channels;
    gemm.batch = conv->groups;
    gemm.stride_b = gemm.n * gemm.k;
    gemm.align = mp_align_after(mp_align_after(conv->align, gemm.stride_a, conv->type),
                                gemm.stride_c, conv->type);
    const mp_ref own[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = operands[MP_CONV_X],
                                          [MP_GEMM_B] = operands[MP_CONV_W],
                                          [MP_GEMM_C] = operands[MP_CONV_Y]};
    return mp_plan_gemm(p, &gemm, own);
}

/* [width out, width in] x [width in, pixels] for each group of each image. A call has all groups of
 * an image or all images of a group, so that there are as few as can be. */
static mp_status products_first(mp_planner *p, const mp_conv *conv,
                                const mp_ref operands[MP_CONV_OPERANDS]) {
    const uint64_t size = mp_dtype_size(conv->type);
    const int64_t pixels = mp_conv_pixels(conv);
    const bool by_image = conv->batch <= conv->groups;
    mp_gemm gemm = product_of(p, conv);
    gemm.m = conv->out_channels / conv->groups;
    gemm.n = gemm.ldb = gemm.ldc = pixels;
    gemm.lda = gemm.k;
    const int64_t w = gemm.m * gemm.k, x = gemm.k * pixels, y = gemm.m * pixels; /* of a group */
    gemm.batch = by_image ? conv->groups : conv->batch;
    gemm.stride_a = by_image ? w : 0;
    gemm.stride_b = by_image ? x : x * conv->groups;
    gemm.stride_c = by_image ? y : y * conv->groups;
    gemm.align = mp_align_after(
        mp_align_after(mp_align_after(conv->align, w, conv->type), x, conv->type), y, conv->type);
    for (int64_t i = 0; i < MP_MIN(conv->batch, conv->groups); i++) {
        const uint64_t to_w = (uint64_t)(by_image ? 0 : i * w) * size;
        const uint64_t step = (uint64_t)(by_image ? i * conv->groups : i) * size;
        const mp_ref own[MP_GEMM_OPERANDS] = {
            [MP_GEMM_A] = mp_ref_at(operands[MP_CONV_W], to_w),
            [MP_GEMM_B] = mp_ref_at(operands[MP_CONV_X], step * (uint64_t)x),
            [MP_GEMM_C] = mp_ref_at(operands[MP_CONV_Y], step * (uint64_t)y)};
        MP_TRY(mp_plan_gemm(p, &gemm, own));
    }
    return MP_OK;
}

mp_status mp_group_pixels_steps(mp_planner *p, const mp_conv *conv, const mp_shape *stored,
                                const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_shape channels = {.rank = 1 + conv->spatial, .dim = {conv->out_channels, 1, 1, 1}};
    if (conv->channels_last) {
        channels.rank = 1;
    }
    const mp_operand y = {operands[MP_CONV_Y], stored};
    const mp_operand bias = {operands[MP_CONV_BIAS], conv->bias ? &channels : NULL};
    MP_TRY(conv->channels_last ? product_last(p, conv, operands)
                               : products_first(p, conv, operands));
    if (mp_conv_has_epilogue(conv)) {
        return mp_epilogue_steps(p, conv, y, bias, y.ref, 0, stored);
    }
    return conv->bias ? mp_pointwise2(p, "add", conv->type, y, bias, y.ref, stored, 0, 0) : MP_OK;
}
