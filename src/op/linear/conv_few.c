/* conv_few.c - see conv_few.h.
 * Kernel: linear/conv_few.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_few.h"

#include "kernel/linear/linear_args.h"

enum {
    DEPTH_MAX = 8192,       /* of a channel's sum: a block goes along it alone */
    PRODUCTS_MAX = 1 << 22, /* beyond, a library has enough to do */
    EMULATED_MAX = 1 << 14, /* the same on the emulated device, whose lanes find each tap alone */
    CHANNELS_MAX = 1 << 20, /* that enter a group */
    FAR = 1 << 28,          /* two distances, added, are an int32_t */
    TAPS_EACH = 4,          /* of a lane, where lanes suffice */
    LANES_MIN = 32,
    LANES_MAX = 256,
};

/* ---- which ---- */

static bool is_near(int64_t a, int64_t b) {
    int64_t product = 0;
    return !__builtin_mul_overflow(a, b, &product) && product <= FAR && product >= -FAR;
}

static bool fits(const mp_conv *conv) {
    bool fit = conv->in_channels / conv->groups <= CHANNELS_MAX;
    for (int d = 0; d < conv->spatial; d++) {
        fit = fit && conv->in[d] <= FAR && conv->kernel[d] >= 1 && conv->kernel[d] <= DEPTH_MAX &&
              is_near(conv->kernel[d], conv->dilation[d]) && is_near(conv->pad_begin[d], 1) &&
              is_near(conv->out[d], conv->stride[d]);
    }
    return fit;
}

static int64_t depth_of(const mp_conv *conv) {
    int64_t depth = conv->in_channels / conv->groups;
    for (int d = 0; d < conv->spatial; d++) {
        depth *= conv->kernel[d];
    }
    return depth;
}

/* Places, or more than K_CONV_FEW where there are more. */
static int64_t places_of(const mp_conv *conv) {
    int64_t places = conv->batch;
    for (int d = 0; d < conv->spatial && places <= K_CONV_FEW; d++) {
        places = conv->out[d] <= K_CONV_FEW ? places * conv->out[d] : K_CONV_FEW + 1;
    }
    return places;
}

bool mp_conv_few_takes(const mp_planner *p, const mp_conv *conv) {
    const int64_t most = p->device->info.arch == 0 ? EMULATED_MAX : PRODUCTS_MAX;
    const bool is_kept = conv->type == MP_F32 || conv->type == MP_F16 || conv->type == MP_BF16;
    if (!is_kept || conv->transposed || conv->channels_last || conv->spatial > 2 ||
        conv->activation == MP_ACTIVATION_OTHER || conv->residual_behind ||
        places_of(conv) > K_CONV_FEW || !fits(conv)) {
        return false;
    }
    const int64_t depth = depth_of(conv);
    return depth <= DEPTH_MAX && conv->out_channels <= most / (depth * places_of(conv));
}

/* ---- its steps ---- */

/* One dimension is an image of one row. */
static mp_conv_few_args args_of(const mp_conv *conv) {
    const int h = 0, w = conv->spatial - 1;
    const bool flat = conv->spatial == 1;
    const int64_t out_h = flat ? 1 : conv->out[h];
    mp_conv_few_args a = {
        .places = (int32_t)places_of(conv),
        .channels = (int32_t)conv->out_channels,
        .group_in = (int32_t)(conv->in_channels / conv->groups),
        .group_out = (int32_t)(conv->out_channels / conv->groups),
        .depth = (int32_t)depth_of(conv),
        .in_h = flat ? 1 : (int32_t)conv->in[h],
        .in_w = (int32_t)conv->in[w],
        .kernel_h = flat ? 1 : (int32_t)conv->kernel[h],
        .kernel_w = (int32_t)conv->kernel[w],
        .dilation_h = flat ? 1 : (int32_t)conv->dilation[h],
        .dilation_w = (int32_t)conv->dilation[w],
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    a.in_plane = (int64_t)a.in_h * a.in_w;
    a.out_plane = out_h * conv->out[w];
    a.by_kernel_h = mp_divider((uint32_t)a.kernel_h);
    a.by_kernel_w = mp_divider((uint32_t)a.kernel_w);
    for (int32_t p = 0; p < a.places; p++) {
        const int64_t image = p / a.out_plane, pixel = p % a.out_plane;
        a.x_at[p] = image * conv->in_channels * a.in_plane;
        a.y_at[p] = image * conv->out_channels * a.out_plane + pixel;
        a.row[p] =
            flat ? 0 : (int32_t)(pixel / conv->out[w] * conv->stride[h] - conv->pad_begin[h]);
        a.column[p] = (int32_t)(pixel % conv->out[w] * conv->stride[w] - conv->pad_begin[w]);
    }
    return a;
}

static uint32_t lanes_for(int32_t depth) {
    uint32_t lanes = LANES_MIN;
    while (lanes < LANES_MAX && (int64_t)lanes * TAPS_EACH < depth) {
        lanes *= 2;
    }
    return lanes;
}

mp_status mp_conv_few_steps(mp_planner *p, const mp_conv *conv,
                            const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    const mp_conv_few_args a = args_of(conv);
    const int room = a.places > 4 ? 8 : a.places > 2 ? 4 : a.places;
    const mp_grid grid = {.blocks = (uint32_t)a.channels, .lanes = lanes_for(a.depth)};
    MP_TRY(mp_plan_kernel(p, &kernel, "conv_few_%d_%s", room, mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_conv_few_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_conv_few_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_conv_few_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_conv_few_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_conv_few_args, y, operands[MP_CONV_Y]));
}
