/* conv_rows.c - see conv_rows.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_rows.h"

#include "op/linear/product_steps.h"
#include "op/pointwise/pointwise_steps.h"

enum { H, W };

/* Of a line, a picture of height 1. */
static bool are_side_by_side(const mp_conv *conv, int64_t *columns) {
    return conv->in[H] == 1 && conv->out[H] == 1 && conv->kernel[H] == 1 &&
           conv->kernel[W] == conv->stride[W] && conv->dilation[W] == 1 &&
           conv->pad_begin[W] == 0 && conv->pad_end[W] == 0 &&
           !__builtin_mul_overflow(conv->in[W], conv->kernel[W], columns) &&
           conv->out[W] == *columns;
}

/* What its one window makes of a single pixel, and no more. */
static bool is_one_window(const mp_conv *conv) {
    bool one = true;
    for (int d = H; d <= W; d++) {
        one = one && conv->in[d] == 1 && conv->out[d] == conv->kernel[d] &&
              conv->dilation[d] == 1 && conv->pad_begin[d] == 0 && conv->pad_end[d] == 0;
    }
    return one;
}

bool mp_conv_rows_takes(const mp_conv *conv) {
    int64_t columns = 0;
    return conv->transposed && conv->channels_last && conv->groups == 1 && conv->spatial == 2 &&
           !mp_conv_has_epilogue(conv) &&
           (are_side_by_side(conv, &columns) || is_one_window(conv)) &&
           !__builtin_mul_overflow(conv->kernel[H], conv->kernel[W], &columns) &&
           !__builtin_mul_overflow(columns, conv->out_channels, &columns);
}

/* [batch * pixels][channels in] x [channels in][taps * channels out]. */
mp_status mp_conv_rows_steps(mp_planner *p, const mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    const int64_t columns = conv->kernel[H] * conv->kernel[W] * conv->out_channels;
    const mp_gemm gemm = {.type = conv->type,
                          .tf32 = conv->tf32,
                          .m = conv->batch * conv->in[W],
                          .n = columns,
                          .k = conv->in_channels,
                          .lda = conv->in_channels,
                          .ldb = columns,
                          .ldc = columns,
                          .batch = 1,
                          .alpha = 1,
                          .align = conv->align,
                          .tune = p->node->options.tune,
                          .tune_ms = p->node->options.tune_ms};
    const mp_ref own[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = operands[MP_CONV_X],
                                          [MP_GEMM_B] = operands[MP_CONV_W],
                                          [MP_GEMM_C] = operands[MP_CONV_Y]};
    const mp_shape rows = {.rank = 2,
                           .dim = {gemm.m * conv->kernel[H] * conv->kernel[W], conv->out_channels}};
    const mp_shape bias = {.rank = 1, .dim = {conv->out_channels}};
    MP_TRY(mp_plan_gemm(p, &gemm, own));
    return conv->bias
               ? mp_pointwise2(p, "add", conv->type, (mp_operand){operands[MP_CONV_Y], &rows},
                               (mp_operand){operands[MP_CONV_BIAS], &bias}, operands[MP_CONV_Y],
                               &rows, 0, 0)
               : MP_OK;
}
