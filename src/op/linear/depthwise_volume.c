/* depthwise_volume.c - see depthwise_volume.h.
 * Kernel: linear/depthwise_volume.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise_volume.h"

#include "kernel/linear/linear_args.h"

enum {
    TAPS_MAX = 512, /* beyond, nobody has timed it */
    FAR = 1 << 27,  /* sums of a few distances are an int32_t */
};

/* Whether places, and what all outputs come to, are numbers of 32 bits. */
static bool fits_int(const mp_conv *conv) {
    int64_t outputs = 0;
    bool fits = !__builtin_mul_overflow(conv->batch, conv->in_channels, &outputs);
    for (int d = 0; fits && d < 3; d++) {
        fits = conv->in[d] <= FAR && conv->kernel[d] <= TAPS_MAX && conv->stride[d] <= FAR &&
               conv->dilation[d] <= FAR / TAPS_MAX && conv->pad_begin[d] <= FAR &&
               conv->pad_begin[d] >= -FAR && conv->out[d] <= FAR &&
               conv->out[d] * conv->stride[d] <= 4 * (int64_t)FAR &&
               !__builtin_mul_overflow(outputs, conv->out[d], &outputs);
    }
    return fits && outputs <= INT32_MAX;
}

bool mp_depthwise_volume_takes(const mp_conv *conv) {
    const bool is_kept = conv->type == MP_F32 || conv->type == MP_F16 || conv->type == MP_BF16;
    return is_kept && !conv->transposed && !conv->channels_last && conv->spatial == 3 &&
           conv->groups == conv->in_channels && conv->groups == conv->out_channels &&
           fits_int(conv) && conv->kernel[0] * conv->kernel[1] * conv->kernel[2] <= TAPS_MAX;
}

mp_status mp_depthwise_volume_steps(mp_planner *p, const mp_conv *conv,
                                    const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    mp_volume_args a = {.channels = (int32_t)conv->in_channels,
                        .strips = (int32_t)MP_CEIL_DIV(conv->out[2], K_VOLUME_STRIP),
                        .activation = (int32_t)conv->activation,
                        .alpha = conv->alpha,
                        .beta = conv->beta};
    for (int d = 0; d < 3; d++) {
        a.in[d] = (int32_t)conv->in[d];
        a.out[d] = (int32_t)conv->out[d];
        a.kernel[d] = (int32_t)conv->kernel[d];
        a.stride[d] = (int32_t)conv->stride[d];
        a.dilation[d] = (int32_t)conv->dilation[d];
        a.pad[d] = (int32_t)conv->pad_begin[d];
    }
    a.by_strips = mp_divider((uint32_t)a.strips);
    a.by_channels = mp_divider((uint32_t)a.channels);
    a.by_out[0] = mp_divider((uint32_t)a.out[0]);
    a.by_out[1] = mp_divider((uint32_t)a.out[1]);
    a.count = conv->batch * conv->in_channels * conv->out[0] * conv->out[1] * a.strips;
    MP_TRY(mp_plan_kernel(p, &kernel, "depthwise_volume_%s", mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, a.count, 1), a,
                     MP_BIND(mp_volume_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_volume_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_volume_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_volume_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_volume_args, y, operands[MP_CONV_Y]));
}
