/* depthwise_line.c - see depthwise_line.h.
 * Kernel: linear/depthwise_line.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise_line.h"

#include "kernel/linear/linear_args.h"

enum {
    TAPS_HELD_MAX = 64, /* longer windows are taken in parts */
    CHANNELS_MIN = K_LINE_CHANNELS / 2,
    PIXELS_MIN = K_LINE_STRIP / 2, /* neighbours of a line */
    HELD_MAX = 48 << 10,           /* that every GPU gives */
    BLOCKS_MAX = 128,              /* a multiprocessor; a loop in the kernel does the rest */
    FAR = 1 << 28,                 /* sums of a few distances are an int32_t */
};

/* What an image consists of: under dilation pixels that share taps are a line. */
static int64_t classes_of(const mp_conv *conv) {
    return MP_MIN(conv->dilation[1], conv->out[1]);
}

/* Of the longest of an image's lines. */
static int64_t pixels_of(const mp_conv *conv) {
    return MP_CEIL_DIV(conv->out[1], conv->dilation[1]);
}

static int64_t held_bytes(int64_t taps, int strips_log) {
    return K_LINE_HELD(taps, strips_log) * (int64_t)(K_LINE_CHANNELS * sizeof(float));
}

/* How many strips of a line a block has, so that the fewest products are made of nothing and the
 * fewest pixels are loaded twice; to load one is some eight products. */
static int strips_log_of(const mp_conv *conv, int64_t held_taps) {
    enum { LOAD = 8 };
    int best = K_LINE_STRIPS_LOG;
    int64_t least = INT64_MAX;
    for (int log = K_LINE_STRIPS_LOG; log >= 0; log--) {
        const int64_t tile = (int64_t)K_LINE_STRIP << log;
        const int64_t cost = MP_CEIL_DIV(pixels_of(conv), tile) *
                             (tile * conv->kernel[1] + LOAD * K_LINE_ROWS(held_taps, log));
        if (cost < least && held_bytes(held_taps, log) <= HELD_MAX) {
            least = cost;
            best = log;
        }
    }
    return best;
}

/* All but the divisors, and what a launch adds. */
static mp_depthwise_line_args cut(const mp_conv *conv) {
    mp_depthwise_line_args a = {
        .channels = (int32_t)conv->in_channels,
        .in = (int32_t)conv->in[1],
        .out = (int32_t)conv->out[1],
        .taps = (int32_t)conv->kernel[1],
        .dilation = (int32_t)conv->dilation[1],
        .pad = (int32_t)conv->pad_begin[1],
        .classes = (int32_t)classes_of(conv),
        .lines = (int32_t)(conv->batch * classes_of(conv)),
        .packs = (int32_t)MP_CEIL_DIV(conv->in_channels, K_LINE_CHANNELS),
        .held_taps = (int32_t)MP_MIN(conv->kernel[1], TAPS_HELD_MAX),
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    a.strips_log = strips_log_of(conv, a.held_taps);
    a.tiles = (int32_t)MP_CEIL_DIV(pixels_of(conv), (int64_t)K_LINE_STRIP << a.strips_log);
    const int64_t together = (int64_t)1 << (K_LINE_STRIPS_LOG - a.strips_log);
    if (__builtin_mul_overflow(MP_CEIL_DIV(a.lines, together) * a.tiles, (int64_t)a.packs,
                               &a.count)) {
        a.count = INT64_MAX;
    }
    return a;
}

/* Whether all distances are, also from the last tile's last pixel on. */
static bool fits_int(const mp_conv *conv) {
    const int64_t beyond = 2 * (K_LINE_STRIP << K_LINE_STRIPS_LOG) + TAPS_HELD_MAX;
    return conv->in[1] <= FAR && conv->out[1] <= FAR && conv->in_channels <= FAR &&
           conv->kernel[1] <= FAR && conv->dilation[1] <= FAR / (conv->kernel[1] + beyond) &&
           conv->pad_begin[1] <= FAR && conv->pad_begin[1] >= -FAR &&
           conv->batch <= INT32_MAX / 2 / classes_of(conv);
}

bool mp_depthwise_line_takes(const mp_conv *conv) {
    const bool is_line = conv->in[0] == 1 && conv->out[0] == 1 && conv->kernel[0] == 1 &&
                         conv->kernel[1] > 1 && conv->stride[1] == 1 && conv->pad_begin[0] == 0;
    return is_line && conv->in_channels >= CHANNELS_MIN && pixels_of(conv) >= PIXELS_MIN &&
           fits_int(conv) && cut(conv).count <= INT32_MAX;
}

mp_status mp_depthwise_line_steps(mp_planner *p, const mp_conv *conv,
                                  const mp_ref operands[MP_CONV_OPERANDS]) {
    const int32_t pack_bytes = K_DEPTHWISE_PACK * (int32_t)mp_dtype_size(conv->type);
    const int64_t most = (int64_t)p->device->info.multiprocessors * BLOCKS_MAX;
    const mp_kernel *kernel = NULL;
    mp_depthwise_line_args a = cut(conv);
    a.aligned = p->align >= pack_bytes && conv->in_channels % K_DEPTHWISE_PACK == 0;
    a.by_packs = mp_divider((uint32_t)a.packs);
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_classes = mp_divider((uint32_t)a.classes);
    const mp_grid grid = {.blocks = (uint32_t)MP_MIN(a.count, most),
                          .lanes = K_LINE_LANES,
                          .shared_bytes = (uint32_t)held_bytes(a.held_taps, a.strips_log)};
    MP_TRY(mp_plan_kernel(p, &kernel, "depthwise_line_%s", mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_depthwise_line_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_depthwise_line_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_depthwise_line_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_depthwise_line_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_depthwise_line_args, y, operands[MP_CONV_Y]));
}
