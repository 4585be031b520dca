/* depthwise_strip.c - see depthwise_strip.h.
 * Kernel: linear/depthwise_strip.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise_strip.h"

#include "kernel/linear/strip_args.h"

enum {
    TAPS_MAX = 256,
    LENGTH_MIN = 256, /* of what is made: shorter, most lanes of a block have none */
    FAR = 1 << 28,    /* sums of a few distances are an int32_t */
};

static int64_t tiles_of(int64_t length) {
    return MP_CEIL_DIV(length, K_STRIP_LANES * K_LINE_STRIP);
}

/* Of a line, or of a picture of one row. */
static bool is_line(const mp_conv *conv) {
    return conv->spatial == 1 || (conv->spatial == 2 && conv->in[0] == 1 && conv->out[0] == 1 &&
                                  conv->kernel[0] == 1 && conv->pad_begin[0] == 0);
}

bool mp_depthwise_strip_takes(const mp_conv *conv) {
    const bool is_kept = conv->type == MP_F32 || conv->type == MP_F16 || conv->type == MP_BF16;
    const int d = conv->spatial - 1;
    return is_kept && !conv->transposed && !conv->channels_last && is_line(conv) &&
           conv->groups == conv->in_channels && conv->groups == conv->out_channels &&
           conv->stride[d] == 1 && conv->dilation[d] == 1 && conv->kernel[d] > 1 &&
           conv->kernel[d] <= TAPS_MAX && conv->out[d] >= LENGTH_MIN && conv->in[d] <= FAR &&
           conv->out[d] <= FAR && conv->pad_begin[d] <= FAR && conv->pad_begin[d] >= -FAR &&
           conv->in_channels <= INT32_MAX / conv->batch / tiles_of(conv->out[d]);
}

mp_status mp_depthwise_strip_steps(mp_planner *p, const mp_conv *conv,
                                   const mp_ref operands[MP_CONV_OPERANDS]) {
    const int d = conv->spatial - 1;
    const int64_t strips = MP_CEIL_DIV(conv->out[d], K_LINE_STRIP);
    const mp_kernel *kernel = NULL;
    mp_planes_args a = {
        .all_planes = (int32_t)(conv->batch * conv->in_channels),
        .channels = (int32_t)conv->in_channels,
        .in_w = (int32_t)conv->in[d],
        .out_w = (int32_t)conv->out[d],
        .pad_w = (int32_t)conv->pad_begin[d],
        .taps = (int32_t)conv->kernel[d],
        .tiles = (int32_t)tiles_of(conv->out[d]),
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    a.strips = (int32_t)MP_CEIL_DIV(strips, a.tiles);
    a.count = (int64_t)a.all_planes * a.tiles;
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_channels = mp_divider((uint32_t)a.channels);
    const mp_grid grid = {.blocks = (uint32_t)a.count,
                          .lanes = K_STRIP_LANES,
                          .shared_bytes =
                              (uint32_t)K_STRIP_FLOATS(a.strips, a.taps) * (uint32_t)sizeof(float)};
    MP_TRY(mp_plan_kernel(p, &kernel, "depthwise_strip_%s", mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_planes_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_planes_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_planes_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_planes_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_planes_args, y, operands[MP_CONV_Y]));
}
