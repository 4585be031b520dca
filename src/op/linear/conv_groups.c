/* conv_groups.c - see conv_groups.h.
 * Kernel: linear/conv_groups.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_groups.h"

#include "kernel/linear/linear_args.h"

enum {
    ARCH = 80,               /* whose tensor cores the kernel is written for */
    WIDTH = 8,               /* channels of a group come in so many */
    WIDTH_MAX = 64,          /* of x; nobody has timed more */
    PART = 64,               /* channels of y of a part, at most: sums of a lane */
    NARROW = 32,             /* those of the instance with fewer registers */
    WORD = 4,                /* bytes that are read at once */
    FAR = 1 << 24,           /* distances: sums of a few are an int32_t */
    SHARED_EACH = 200 << 10, /* shared memory of a large multiprocessor, in bytes */
    BLOCKS_EACH = 8,         /* of a multiprocessor, at most */
};

static bool is_power_of_two(int64_t x) {
    return (x & (x - 1)) == 0;
}

/* Whether places in an image, also those of taps beyond it, and what all outputs come to, are
 * numbers of 32 bits. */
static bool fits_int(const mp_conv *conv) {
    int64_t outputs = conv->batch, image = conv->in_channels;
    bool fits = conv->in_channels <= FAR && conv->out_channels <= FAR;
    for (int d = 0; fits && d < 2; d++) {
        const int64_t pad = conv->pad_begin[d];
        fits = conv->in[d] <= FAR && conv->kernel[d] <= FAR && conv->dilation[d] <= FAR &&
               conv->kernel[d] * conv->dilation[d] <= FAR && conv->stride[d] <= FAR && pad <= FAR &&
               pad >= -FAR && conv->out[d] * conv->stride[d] <= 4 * FAR &&
               !__builtin_mul_overflow(outputs, conv->out[d], &outputs) &&
               !__builtin_mul_overflow(image,
                                       conv->in[d] + conv->kernel[d] * conv->dilation[d] +
                                           (pad < 0 ? -pad : pad),
                                       &image);
    }
    return fits && image <= INT32_MAX && outputs <= INT32_MAX - K_GROUP_PIXELS;
}

/* Bytes of shared memory. */
static int64_t held(const mp_group_conv_args *a) {
    return 4 * (int64_t)K_GROUP_SHARED((int64_t)a->items, a->part / WIDTH);
}

/* Fills in what a part is: as large as it may be, and shared memory has room for. */
static bool cut(const mp_planner *p, const mp_conv *conv, mp_group_conv_args *a) {
    const int64_t words =
        conv->in_channels / conv->groups / 4 / (WORD / (int64_t)mp_dtype_size(conv->type));
    const int64_t taps = conv->kernel[0] * conv->kernel[1],
                  most = (int64_t)p->device->info.shared_bytes_max;
    if (taps > FAR / words) {
        return false;
    }
    *a = (mp_group_conv_args){.groups = (int32_t)conv->groups,
                              .width = (int32_t)(conv->in_channels / conv->groups),
                              .group = (int32_t)(conv->out_channels / conv->groups),
                              .steps = (int32_t)MP_CEIL_DIV(words, 2)};
    a->items = (int32_t)taps * a->steps;
    a->part = (int32_t)MP_MIN(a->group, PART);
    while (held(a) > most && a->part > WIDTH) {
        a->part = (a->part / 2 + WIDTH - 1) / WIDTH * WIDTH;
    }
    a->parts = MP_CEIL_DIV(a->group, a->part);
    return held(a) <= most;
}

/* Whether libraries lack kernels for so many channels of a group in x: powers of two they have. */
static bool suits(int64_t width) {
    return width % WIDTH == 0 && width <= WIDTH_MAX && !is_power_of_two(width);
}

bool mp_conv_groups_takes(const mp_planner *p, const mp_conv *conv) {
    const bool is_kept =
        conv->type == MP_F16 || conv->type == MP_BF16 || (conv->type == MP_F32 && conv->tf32);
    mp_group_conv_args a;
    return p->device->info.arch >= ARCH && is_kept && conv->channels_last && !conv->transposed &&
           conv->spatial == 2 && conv->groups > 1 && conv->align >= WORD &&
           suits(conv->in_channels / conv->groups) &&
           conv->out_channels / conv->groups % WIDTH == 0 && fits_int(conv) && cut(p, conv, &a);
}

/* As many blocks as are there at once: each brings up weights. */
static mp_grid grid_of(const mp_planner *p, const mp_group_conv_args *a) {
    const int64_t warps = K_GROUP_LANES / 32, sides = (int64_t)a->groups * a->parts;
    const int64_t each = MP_MIN(BLOCKS_EACH, MP_MAX(SHARED_EACH / held(a), 1));
    const int64_t most = MP_MAX(p->device->info.multiprocessors * each / sides, 1);
    return (mp_grid){.blocks = (uint32_t)(sides * MP_MIN(MP_CEIL_DIV(a->count, warps), most)),
                     .lanes = K_GROUP_LANES,
                     .shared_bytes = (uint32_t)held(a)};
}

mp_status mp_conv_groups_steps(mp_planner *p, const mp_conv *conv,
                               const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    mp_group_conv_args a;
    if (!cut(p, conv, &a)) {
        return MP_FAIL(INTERNAL, "the kernel for groups of channels has no such convolution");
    }
    a.x_image = conv->in[0] * conv->in[1] * conv->in_channels;
    a.in_h = (int32_t)conv->in[0];
    a.in_w = (int32_t)conv->in[1];
    a.out_h = (int32_t)conv->out[0];
    a.out_w = (int32_t)conv->out[1];
    a.in_channels = (int32_t)conv->in_channels;
    a.out_channels = (int32_t)conv->out_channels;
    a.kernel_h = (int32_t)conv->kernel[0];
    a.kernel_w = (int32_t)conv->kernel[1];
    a.stride_h = (int32_t)conv->stride[0];
    a.stride_w = (int32_t)conv->stride[1];
    a.dilation_h = (int32_t)conv->dilation[0];
    a.dilation_w = (int32_t)conv->dilation[1];
    a.pad_h = (int32_t)conv->pad_begin[0];
    a.pad_w = (int32_t)conv->pad_begin[1];
    a.pixels = (int32_t)(conv->batch * conv->out[0] * conv->out[1]);
    a.count = MP_CEIL_DIV(a.pixels, K_GROUP_PIXELS);
    a.constant = mp_plan_is_constant(p, operands[MP_CONV_W]) &&
                 mp_plan_is_constant(p, operands[MP_CONV_BIAS]);
    a.activation = (int32_t)conv->activation;
    a.alpha = conv->alpha;
    a.beta = conv->beta;
    a.by_out_w = mp_divider((uint32_t)a.out_w);
    a.by_out_h = mp_divider((uint32_t)a.out_h);
    a.by_steps = mp_divider((uint32_t)a.steps);
    a.by_kernel_w = mp_divider((uint32_t)a.kernel_w);
    MP_TRY(mp_plan_kernel(p, &kernel, "conv_groups_%d_%s", a.part > NARROW ? PART : NARROW,
                          mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid_of(p, &a), a,
                     MP_BIND(mp_group_conv_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_group_conv_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_group_conv_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_group_conv_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_group_conv_args, y, operands[MP_CONV_Y]));
}
