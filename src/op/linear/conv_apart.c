/* conv_apart.c - see conv_apart.h.
 * Kernel: linear/conv_apart.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_apart.h"

#include "kernel/linear/linear_args.h"
#include "op/linear/product_steps.h"

enum { WIDE_MIN = 2, WIDE_MAX = 4 };

/* An image of one row where there is one dimension. */
typedef struct sides {
    int64_t in_h, in_w, tap_h, tap_w;
} sides;

static sides sides_of(const mp_conv *conv) {
    const int h = 0, w = conv->spatial - 1;
    const bool flat = conv->spatial == 1;
    return (sides){.in_h = flat ? 1 : conv->in[h],
                   .in_w = conv->in[w],
                   .tap_h = flat ? 1 : conv->kernel[h],
                   .tap_w = conv->kernel[w]};
}

bool mp_conv_apart_takes(const mp_conv *conv) {
    const bool is_kept = conv->type == MP_F64 || conv->type == MP_F32 || conv->type == MP_F16 ||
                         conv->type == MP_BF16;
    bool fits = is_kept && conv->transposed && !conv->channels_last && conv->spatial <= 2 &&
                conv->groups == 1 && !mp_conv_has_epilogue(conv);
    for (int d = 0; fits && d < conv->spatial; d++) {
        fits = conv->kernel[d] == conv->stride[d] && conv->dilation[d] == 1 &&
               conv->pad_begin[d] == 0 && conv->pad_end[d] == 0 &&
               conv->out[d] == conv->in[d] * conv->kernel[d];
    }
    if (!fits) {
        return false;
    }
    const sides s = sides_of(conv);
    int64_t count = conv->batch;
    return s.tap_w >= WIDE_MIN && s.tap_w <= WIDE_MAX &&
           !__builtin_mul_overflow(count, conv->out_channels, &count) &&
           !__builtin_mul_overflow(count, s.tap_h * s.tap_w, &count) &&
           !__builtin_mul_overflow(count, s.in_h * s.in_w, &count) && count <= INT32_MAX;
}

/* For each image [out_channels, taps][in_channels] x [in_channels][pixels], to where `to` is. */
static mp_status product(mp_planner *p, const mp_conv *conv, const mp_ref *operands, mp_ref to) {
    const sides s = sides_of(conv);
    const int64_t pixels = s.in_h * s.in_w, rows = conv->out_channels * s.tap_h * s.tap_w;
    const mp_gemm gemm = {
        .type = conv->type,
        .trans_a = true,
        .tf32 = conv->tf32,
        .m = rows,
        .n = pixels,
        .k = conv->in_channels,
        .lda = rows,
        .ldb = pixels,
        .ldc = pixels,
        .batch = conv->batch,
        .stride_b = conv->in_channels * pixels,
        .stride_c = rows * pixels,
        .alpha = 1,
        .align = mp_align_after(mp_align_after(conv->align, conv->in_channels * pixels, conv->type),
                                rows * pixels, conv->type)};
    const mp_ref own[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = operands[MP_CONV_W],
                                          [MP_GEMM_B] = operands[MP_CONV_X],
                                          [MP_GEMM_C] = to,
                                          [MP_GEMM_D] = MP_NOWHERE,
                                          [MP_GEMM_BIAS] = MP_NOWHERE};
    return mp_plan_gemm(p, &gemm, own);
}

mp_status mp_conv_apart_steps(mp_planner *p, const mp_conv *conv,
                              const mp_ref operands[MP_CONV_OPERANDS]) {
    const sides s = sides_of(conv);
    const int64_t planes = conv->batch * conv->out_channels, in_plane = s.in_h * s.in_w;
    const int64_t pack = K_APART_BYTES / (int64_t)mp_dtype_size(conv->type);
    const bool packed = conv->type != MP_F64 && p->align >= K_APART_BYTES && s.in_w % pack == 0;
    const mp_kernel *kernel = NULL;
    mp_ref made = MP_NOWHERE;
    mp_apart_args a = {.in_plane = in_plane,
                       .channels = (int32_t)conv->out_channels,
                       .tap_rows = (int32_t)s.tap_h,
                       .in_h = (int32_t)s.in_h,
                       .in_w = (int32_t)s.in_w,
                       .units = (int32_t)(packed ? in_plane / pack : in_plane),
                       .across = (int32_t)(packed ? s.in_w / pack : s.in_w),
                       .packed = packed};
    a.count = planes * a.tap_rows * a.units;
    a.by_units = mp_divider((uint32_t)a.units);
    a.by_tap_rows = mp_divider((uint32_t)a.tap_rows);
    a.by_across = mp_divider((uint32_t)a.across);
    a.by_channels = mp_divider((uint32_t)a.channels);
    MP_TRY(mp_plan_kernel(p, &kernel, "conv_apart_%d_%s", (int)s.tap_w, mp_dtype_word(conv->type)));
    MP_TRY(mp_plan_scratch_of(p, planes * s.tap_h * s.tap_w * in_plane, conv->type, &made));
    MP_TRY(product(p, conv, operands, made));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, a.count, 1), a,
                     MP_BIND(mp_apart_args, product, made),
                     MP_BIND(mp_apart_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_apart_args, y, operands[MP_CONV_Y]));
}
