/* depthwise.c - see depthwise.h.
 * Kernels: linear/depthwise.cu, linear/depthwise_tile.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise.h"

#include "kernel/linear/linear_args.h"
#include "op/core/channels.h"
#include "op/linear/depthwise_line.h"

static_assert((int)K_ACTIVATE_SWISH == (int)MP_ACTIVATION_SWISH &&
                  (int)K_ACTIVATE_RELU == (int)MP_ACTIVATION_RELU &&
                  (int)K_ACTIVATE_CLIP == (int)MP_ACTIVATION_CLIP,
              "the kernel numbers activations as the devices do");

enum {
    LANES = 64,      /* of a block of depthwise.cu: few, so that many multiprocessors have one */
    BLOCKS_MAX = 128 /* a multiprocessor; a loop in the kernel does the rest */
};

bool mp_depthwise_takes(mp_dtype type, const mp_shape *w, int64_t groups) {
    const bool is_kept = type == MP_F32 || type == MP_F16 || type == MP_BF16;
    return is_kept && (w->rank == 3 || w->rank == 4) && w->dim[1] == 1 && w->dim[0] == groups;
}

mp_status mp_depthwise_turn(mp_planner *p, mp_dtype type, const mp_shape *w, mp_ref from,
                            mp_ref to) {
    mp_shape as_image = *w;
    as_image.dim[0] = 1;
    as_image.dim[1] = w->dim[0];
    return mp_plan_channels_to_last(p, type, &as_image, from, to);
}

/* What a block of the kernel that holds tiles needs, in bytes. */
static size_t tile_bytes(int64_t size, int64_t stride) {
    return (size_t)(K_DEPTHWISE_HELD(size, stride) * K_DEPTHWISE_PITCH(stride)) * sizeof(float);
}

/* Elements from one pixel of the image, and of the result, to the next. */
static int64_t x_pitch(const mp_conv *conv) {
    return conv->x_pitch > 0 ? conv->x_pitch : conv->in_channels;
}
static int64_t y_pitch(const mp_conv *conv) {
    return conv->y_pitch > 0 ? conv->y_pitch : conv->in_channels;
}

/* Whether that kernel takes it, which counts elements of some lines in 32 bits. */
static bool in_tiles(const mp_planner *p, const mp_conv *conv) {
    enum { LINES = 32 };
    const int64_t size = conv->kernel[0], stride = conv->stride[0];
    const int64_t largest = stride == 1 ? 13 : stride == 2 ? 11 : 0; /* that kernels are made for */
    return size == conv->kernel[1] && stride == conv->stride[1] && conv->dilation[0] == 1 &&
           conv->dilation[1] == 1 && size % 2 == 1 && size >= 3 && size <= largest &&
           conv->in[1] <= INT32_MAX / LINES / x_pitch(conv) &&
           tile_bytes(size, stride) <= p->device->info.shared_bytes_max;
}

static mp_status find_kernel(mp_planner *p, const mp_conv *conv, const mp_kernel **out) {
    const char *word = mp_dtype_word(conv->type);
    return in_tiles(p, conv) ? mp_plan_kernel(p, out, "depthwise_%d_%d_%s", (int)conv->kernel[0],
                                              (int)conv->stride[0], word)
                             : mp_plan_kernel(p, out, "depthwise_any_%s", word);
}

/* Of `units` lanes or tiles. */
static mp_grid grid_of(const mp_planner *p, const mp_conv *conv, int64_t units) {
    const bool tiles = in_tiles(p, conv);
    const int64_t most = (int64_t)p->device->info.multiprocessors * BLOCKS_MAX;
    const int64_t blocks = tiles ? units : MP_CEIL_DIV(units, LANES);
    mp_grid grid = {.blocks = (uint32_t)MP_MIN(blocks, most),
                    .lanes = tiles ? K_DEPTHWISE_LANES : LANES};
    if (tiles) {
        grid.shared_bytes = (uint32_t)tile_bytes(conv->kernel[0], conv->stride[0]);
    }
    return grid;
}

static bool fits_int(const mp_conv *conv) {
    bool fits = x_pitch(conv) <= INT32_MAX / 2 && y_pitch(conv) <= INT32_MAX / 2;
    for (int i = 0; i < 2; i++) {
        fits = fits && conv->in[i] <= INT32_MAX / 4 && conv->out[i] <= INT32_MAX / 4 &&
               conv->kernel[i] <= INT32_MAX / 4 && conv->stride[i] <= INT32_MAX / 4 &&
               conv->dilation[i] <= INT32_MAX / 4 && conv->pad_begin[i] <= INT32_MAX / 4 &&
               conv->pad_begin[i] >= -INT32_MAX / 4 &&
               (conv->out[i] + K_DEPTHWISE_ROWS) * conv->stride[i] <= INT32_MAX / 2 &&
               conv->kernel[i] * conv->dilation[i] <= INT32_MAX / 2;
    }
    return fits;
}

static mp_depthwise_args args_of(const mp_planner *p, const mp_conv *conv) {
    const int32_t bytes = K_DEPTHWISE_PACK * (int32_t)mp_dtype_size(conv->type);
    const bool tiles = in_tiles(p, conv);
    const int64_t high = tiles ? K_DEPTHWISE_ROWS : 1;
    const int64_t wide = tiles ? K_DEPTHWISE_COLUMNS : K_DEPTHWISE_TILE;
    const int64_t deep = tiles ? K_DEPTHWISE_CHANNELS : K_DEPTHWISE_PACK;
    mp_depthwise_args a = {
        .channels = (int32_t)conv->in_channels,
        .in_h = (int32_t)conv->in[0],
        .in_w = (int32_t)conv->in[1],
        .out_h = (int32_t)conv->out[0],
        .out_w = (int32_t)conv->out[1],
        .kernel_h = (int32_t)conv->kernel[0],
        .kernel_w = (int32_t)conv->kernel[1],
        .x_pitch = (int32_t)x_pitch(conv),
        .y_pitch = (int32_t)y_pitch(conv),
        .stride_h = (int32_t)conv->stride[0],
        .stride_w = (int32_t)conv->stride[1],
        .dilation_h = (int32_t)conv->dilation[0],
        .dilation_w = (int32_t)conv->dilation[1],
        .pad_h = (int32_t)conv->pad_begin[0],
        .pad_w = (int32_t)conv->pad_begin[1],
        .lines = (int32_t)MP_CEIL_DIV(conv->out[0], high),
        .tiles = (int32_t)MP_CEIL_DIV(conv->out[1], wide),
        .packs = (int32_t)MP_CEIL_DIV(conv->in_channels, deep),
        .aligned = p->align >= bytes && conv->in_channels % K_DEPTHWISE_PACK == 0 &&
                   x_pitch(conv) % K_DEPTHWISE_PACK == 0 && y_pitch(conv) % K_DEPTHWISE_PACK == 0,
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    a.by_packs = mp_divider((uint32_t)a.packs);
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_lines = mp_divider((uint32_t)a.lines);
    return a;
}

/* Images [first, first + images). */
static mp_status launch(mp_planner *p, const mp_conv *conv, const mp_kernel *kernel,
                        mp_depthwise_args *a, const mp_ref *operands, int64_t first,
                        int64_t images) {
    const uint64_t size = mp_dtype_size(conv->type);
    const uint64_t in = (uint64_t)(first * conv->in[0] * conv->in[1] * x_pitch(conv)) * size;
    const uint64_t out = (uint64_t)(first * conv->out[0] * conv->out[1] * y_pitch(conv)) * size;
    a->count = images * a->lines * a->tiles * a->packs;
    const mp_grid grid = grid_of(p, conv, a->count);
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
    int64_t units = 0; /* of an image */
    if (mp_depthwise_line_takes(conv)) {
        return mp_depthwise_line_steps(p, conv, operands);
    }
    if (!fits_int(conv)) {
        return MP_FAIL(UNSUPPORTED, "sizes of 2^29 or more are not supported with channels last");
    }
    mp_depthwise_args a = args_of(p, conv);
    if (__builtin_mul_overflow((int64_t)a.lines * a.tiles, (int64_t)a.packs, &units) ||
        units > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED, "an image of %lld x %lld with %lld channels is too large",
                       (long long)conv->out[0], (long long)conv->out[1],
                       (long long)conv->in_channels);
    }
    MP_TRY(find_kernel(p, conv, &kernel));
    const int64_t most = INT32_MAX / units;
    for (int64_t first = 0; first < conv->batch; first += most) {
        MP_TRY(launch(p, conv, kernel, &a, operands, first, MP_MIN(most, conv->batch - first)));
    }
    return MP_OK;
}
