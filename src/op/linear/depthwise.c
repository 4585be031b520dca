/* depthwise.c - see depthwise.h.
 * Kernel: linear/depthwise.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise.h"

#include "kernel/linear/linear_args.h"
#include "op/core/channels.h"

static_assert((int)K_ACTIVATE_GELU_TANH == (int)MP_ACTIVATION_GELU_TANH &&
                  (int)K_ACTIVATE_RELU == (int)MP_ACTIVATION_RELU &&
                  (int)K_ACTIVATE_CLIP == (int)MP_ACTIVATION_CLIP,
              "the kernel numbers activations as the devices do");

enum {
    LANES = 64,      /* of a block: few, so that many multiprocessors have one */
    BLOCKS_MAX = 128 /* a multiprocessor; a loop in the kernel does the rest */
};

bool mp_depthwise_takes(mp_dtype type, const mp_shape *w, int64_t groups) {
    const bool is_kept = type == MP_F32 || type == MP_F16 || type == MP_BF16;
    return is_kept && w->rank == 4 && w->dim[1] == 1 && w->dim[0] == groups;
}

mp_status mp_depthwise_turn(mp_planner *p, mp_dtype type, const mp_shape *w, mp_ref from,
                            mp_ref to) {
    const mp_shape as_image = {.rank = 4, .dim = {1, w->dim[0], w->dim[2], w->dim[3]}};
    return mp_plan_channels_to_last(p, type, &as_image, from, to);
}

static mp_status find_kernel(mp_planner *p, const mp_conv *conv, const mp_kernel **out) {
    const int64_t size = conv->kernel[0];
    const int64_t stride = conv->stride[0];
    const bool square = size == conv->kernel[1] && stride == conv->stride[1] &&
                        conv->dilation[0] == 1 && conv->dilation[1] == 1;
    const char *word = mp_dtype_word(conv->type);
    if (square && (size == 3 || size == 5 || size == 7) && (stride == 1 || stride == 2)) {
        return mp_plan_kernel(p, out, "depthwise_%d_%d_%s", (int)size, (int)stride, word);
    }
    return mp_plan_kernel(p, out, "depthwise_any_%s", word);
}

static bool fits_int(const mp_conv *conv) {
    bool fits = conv->in_channels <= INT32_MAX / 2;
    for (int i = 0; i < 2; i++) {
        fits = fits && conv->in[i] <= INT32_MAX / 4 && conv->out[i] <= INT32_MAX / 4 &&
               conv->kernel[i] <= INT32_MAX / 4 && conv->stride[i] <= INT32_MAX / 4 &&
               conv->dilation[i] <= INT32_MAX / 4 && conv->pad_begin[i] <= INT32_MAX / 4 &&
               conv->pad_begin[i] >= -INT32_MAX / 4 &&
               (conv->out[i] + K_DEPTHWISE_TILE) * conv->stride[i] <= INT32_MAX / 2 &&
               conv->kernel[i] * conv->dilation[i] <= INT32_MAX / 2;
    }
    return fits;
}

static mp_depthwise_args args_of(const mp_planner *p, const mp_conv *conv) {
    const int32_t bytes = K_DEPTHWISE_PACK * (int32_t)mp_dtype_size(conv->type);
    mp_depthwise_args a = {
        .channels = (int32_t)conv->in_channels,
        .in_h = (int32_t)conv->in[0],
        .in_w = (int32_t)conv->in[1],
        .out_h = (int32_t)conv->out[0],
        .out_w = (int32_t)conv->out[1],
        .kernel_h = (int32_t)conv->kernel[0],
        .kernel_w = (int32_t)conv->kernel[1],
        .stride_h = (int32_t)conv->stride[0],
        .stride_w = (int32_t)conv->stride[1],
        .dilation_h = (int32_t)conv->dilation[0],
        .dilation_w = (int32_t)conv->dilation[1],
        .pad_h = (int32_t)conv->pad_begin[0],
        .pad_w = (int32_t)conv->pad_begin[1],
        .tiles = (int32_t)MP_CEIL_DIV(conv->out[1], K_DEPTHWISE_TILE),
        .packs = (int32_t)MP_CEIL_DIV(conv->in_channels, K_DEPTHWISE_PACK),
        .aligned = p->align >= bytes && conv->in_channels % K_DEPTHWISE_PACK == 0,
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    a.by_packs = mp_divider((uint32_t)a.packs);
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_out_h = mp_divider((uint32_t)a.out_h);
    return a;
}

/* Images [first, first + images). */
static mp_status launch(mp_planner *p, const mp_conv *conv, const mp_kernel *kernel,
                        mp_depthwise_args *a, const mp_ref *operands, int64_t first,
                        int64_t images) {
    const uint64_t size = mp_dtype_size(conv->type);
    const uint64_t in = (uint64_t)(first * conv->in[0] * conv->in[1] * conv->in_channels) * size;
    const uint64_t out = (uint64_t)(first * conv->out[0] * conv->out[1] * conv->in_channels) * size;
    a->count = images * conv->out[0] * a->tiles * a->packs;
    const int64_t most = (int64_t)p->device->info.multiprocessors * BLOCKS_MAX;
    const int64_t blocks = MP_CEIL_DIV(a->count, LANES);
    const mp_grid grid = {.blocks = (uint32_t)MP_MIN(blocks, most), .lanes = LANES};
    return MP_LAUNCH(
        p, kernel, grid, *a, MP_BIND(mp_depthwise_args, x, mp_ref_at(operands[MP_CONV_X], in)),
        MP_BIND(mp_depthwise_args, w, operands[MP_CONV_W]),
        MP_BIND(mp_depthwise_args, bias, operands[MP_CONV_BIAS]),
        MP_BIND(mp_depthwise_args, residual,
                conv->residual ? mp_ref_at(operands[MP_CONV_RESIDUAL], out) : MP_NOWHERE),
        MP_BIND(mp_depthwise_args, y, mp_ref_at(operands[MP_CONV_Y], out)));
}

mp_status mp_depthwise_steps(mp_planner *p, const mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    int64_t lanes = 0; /* of an image */
    if (!fits_int(conv)) {
        return MP_FAIL(UNSUPPORTED, "sizes of 2^29 or more are not supported with channels last");
    }
    mp_depthwise_args a = args_of(p, conv);
    if (__builtin_mul_overflow(conv->out[0] * a.tiles, (int64_t)a.packs, &lanes) ||
        lanes > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED, "an image of %lld x %lld with %lld channels is too large",
                       (long long)conv->out[0], (long long)conv->out[1],
                       (long long)conv->in_channels);
    }
    MP_TRY(find_kernel(p, conv, &kernel));
    const int64_t most = INT32_MAX / lanes;
    for (int64_t first = 0; first < conv->batch; first += most) {
        MP_TRY(launch(p, conv, kernel, &a, operands, first, MP_MIN(most, conv->batch - first)));
    }
    return MP_OK;
}
