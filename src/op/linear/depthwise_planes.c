/* depthwise_planes.c - see depthwise_planes.h.
 * Kernel: linear/depthwise_planes.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise_planes.h"

#include "kernel/linear/linear_args.h"

enum {
    STRIPS_MAX = 32,        /* of a tile: lanes that a line of it keeps busy */
    HELD_WANTED = 24 << 10, /* bytes of a block, so that a multiprocessor has eight */
    HELD_MAX = 48 << 10,    /* that every GPU gives */
    BLOCKS_EACH = 2,        /* of a multiprocessor, before a block gets several planes */
    TAPS_MAX = 256,         /* beyond, nobody has timed it */
    WORD = 4,
    WIDE = 4,      /* elements of two bytes that are loaded at once */
    FAR = 1 << 28, /* two distances, added, are an int32_t */
};

/* ---- how a block's share is cut ---- */

static bool may_be_wide(const mp_conv *conv) {
    return mp_dtype_size(conv->type) == 2 && conv->in[1] % WIDE == 0;
}

static int64_t plane_bytes(const mp_planes_args *a) {
    return ((int64_t)a->in_rows * a->pitch + K_PLANES_TAPS(a->taps)) * (int64_t)sizeof(float);
}

static int64_t held_bytes(const mp_planes_args *a) {
    return K_PLANES_BEFORE * (int64_t)sizeof(float) + a->planes * plane_bytes(a);
}

static void set_groups(mp_planes_args *a, int32_t groups) {
    const int32_t reach = (a->kernel_h - 1) * a->dilation_h + 1;
    a->groups = groups;
    a->in_rows = K_PLANES_SIDE(groups * K_PLANES_ROWS, reach, a->stride_h);
}

/* Tiles of one plane. A line of strips is as long as lanes and the image allow, so that what is
 * read of x twice is little; all tiles of a plane are alike. */
static void cut_plane(mp_planes_args *a, int32_t apart) {
    const int32_t strips = MP_CEIL_DIV(a->out_w, K_PLANES_STRIP);
    const int32_t groups = MP_CEIL_DIV(a->out_h, K_PLANES_ROWS);
    const int32_t reach = (a->kernel_w - 1) * a->dilation_w + 1;
    a->tiles = MP_CEIL_DIV(strips, STRIPS_MAX);
    a->strips = MP_CEIL_DIV(strips, a->tiles);
    a->columns = K_PLANES_SIDE(a->strips * K_PLANES_STRIP, reach, a->stride_w);
    /* A strip reads whole fours of what is held, which this has, too: what lies between the end of
     * a row and the last four is less than four. */
    a->pitch = MP_ALIGN_UP(a->columns + apart, 4);
    int32_t most = MP_MIN(groups, K_PLANES_LANES / a->strips);
    for (set_groups(a, most); most > 1 && plane_bytes(a) > HELD_WANTED;) {
        set_groups(a, --most);
    }
    a->bands = MP_CEIL_DIV(groups, most);
    set_groups(a, MP_CEIL_DIV(groups, a->bands));
}

static mp_planes_args cut(const mp_conv *conv) {
    mp_planes_args a = {
        .all_planes = (int32_t)(conv->batch * conv->in_channels),
        .channels = (int32_t)conv->in_channels,
        .in_h = (int32_t)conv->in[0],
        .in_w = (int32_t)conv->in[1],
        .out_h = (int32_t)conv->out[0],
        .out_w = (int32_t)conv->out[1],
        .pad_h = (int32_t)conv->pad_begin[0],
        .pad_w = (int32_t)conv->pad_begin[1],
        .taps = (int32_t)(conv->kernel[0] * conv->kernel[1]),
        .kernel_h = (int32_t)conv->kernel[0],
        .kernel_w = (int32_t)conv->kernel[1],
        .stride_h = (int32_t)conv->stride[0],
        .stride_w = (int32_t)conv->stride[1],
        .dilation_h = (int32_t)conv->dilation[0],
        .dilation_w = (int32_t)conv->dilation[1],
        .planes = 1,
    };
    cut_plane(&a, may_be_wide(conv) ? K_PLANES_APART_WIDE : K_PLANES_APART);
    return a;
}

/* ---- which ---- */

/* Whether a kernel has been made for these sizes. */
static bool is_usual(const mp_conv *conv) {
    const int64_t size = conv->kernel[0], stride = conv->stride[0];
    return (size == 3 || size == 5 || size == 7) && (stride == 1 || stride == 2) &&
           conv->kernel[1] == size && conv->stride[1] == stride && conv->dilation[0] == 1 &&
           conv->dilation[1] == 1;
}

bool mp_depthwise_planes_takes(const mp_conv *conv) {
    const bool is_kept = conv->type == MP_F32 || conv->type == MP_F16 || conv->type == MP_BF16;
    bool fits = is_kept && !conv->transposed && !conv->channels_last && conv->spatial == 2 &&
                conv->groups == conv->in_channels && conv->groups == conv->out_channels &&
                conv->in_channels <= FAR / conv->batch;
    int64_t reach[2] = {0};
    for (int d = 0; fits && d < 2; d++) {
        fits = conv->kernel[d] <= TAPS_MAX && conv->stride[d] <= TAPS_MAX &&
               conv->dilation[d] <= TAPS_MAX && conv->in[d] <= FAR / 4 &&
               conv->out[d] <= FAR / 4 / conv->stride[d] && conv->pad_begin[d] <= FAR / 4 &&
               conv->pad_begin[d] >= -FAR / 4;
        reach[d] = conv->kernel[d] * conv->dilation[d];
    }
    if (!fits || conv->kernel[0] * conv->kernel[1] > TAPS_MAX ||
        (conv->in[0] + 2 * reach[0]) * (conv->in[1] + 2 * reach[1]) > FAR) {
        return false;
    }
    const mp_planes_args a = cut(conv);
    return held_bytes(&a) <= HELD_MAX;
}

/* ---- its steps ---- */

/* Small planes share a block, unless then multiprocessors would have none. */
static void join_planes(const mp_planner *p, mp_planes_args *a) {
    if (a->bands > 1 || a->tiles > 1) {
        return;
    }
    const int32_t blocks = p->device->info.multiprocessors * BLOCKS_EACH;
    const int32_t most =
        MP_MIN(K_PLANES_LANES / (a->groups * a->strips), (int32_t)(HELD_WANTED / plane_bytes(a)));
    a->planes = MP_MAX(1, MP_MIN(most, a->all_planes / blocks));
}

/* How many lanes load neighbours. A lane waits for memory once for all that it has on its way, so
 * what counts is how often; of those that wait alike, the one with fewest loads. */
static int32_t across_log(const mp_planner *p, const mp_planes_args *a, int64_t columns) {
    int32_t best = 0;
    int64_t fewest_waits = INT64_MAX, fewest = INT64_MAX;
    if (p->device->info.warp == 1) { /* one lane has to do */
        return 0;
    }
    for (int32_t log = 0; 1 << log <= K_PLANES_LANES; log++) {
        const int64_t rows = (int64_t)a->planes * a->in_rows;
        const int64_t across = MP_CEIL_DIV(columns, 1 << log);
        const int64_t down = MP_CEIL_DIV(rows, K_PLANES_LANES >> log);
        const int64_t waits = across * MP_CEIL_DIV(down, K_PLANES_AT_ONCE(a->each));
        if (waits < fewest_waits || (waits == fewest_waits && across * down <= fewest)) {
            fewest_waits = waits;
            fewest = across * down;
            best = log;
        }
    }
    return best;
}

static mp_planes_args args_of(const mp_planner *p, const mp_conv *conv) {
    const int32_t bytes = (int32_t)mp_dtype_size(conv->type);
    mp_planes_args a = cut(conv);
    join_planes(p, &a);
    a.each = may_be_wide(conv) && p->align >= WIDE * bytes         ? WIDE
             : p->align >= WORD && conv->in[1] * bytes % WORD == 0 ? WORD / bytes
                                                                   : 1;
    a.packed =
        is_usual(conv) && p->align >= K_PLANES_STRIP * bytes && conv->out[1] % K_PLANES_STRIP == 0;
    a.activation = (int32_t)conv->activation;
    a.alpha = conv->alpha;
    a.beta = conv->beta;
    a.across_log = across_log(p, &a, a.each > 1 ? a.columns / a.each + 1 : a.columns);
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_bands = mp_divider((uint32_t)a.bands);
    a.by_channels = mp_divider((uint32_t)a.channels);
    a.by_groups = mp_divider((uint32_t)a.groups);
    a.by_strips = mp_divider((uint32_t)a.strips);
    a.by_in_rows = mp_divider((uint32_t)a.in_rows);
    a.by_taps = mp_divider((uint32_t)a.taps + 1);
    a.count = (int64_t)MP_CEIL_DIV(a.all_planes, a.planes) * a.bands * a.tiles;
    return a;
}

mp_status mp_depthwise_planes_steps(mp_planner *p, const mp_conv *conv,
                                    const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    const mp_planes_args a = args_of(p, conv);
    if (a.count > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED, "an image of %d x %d with %d channels is too large", a.out_h,
                       a.out_w, a.channels);
    }
    const mp_grid grid = {.blocks = (uint32_t)a.count,
                          .lanes = K_PLANES_LANES,
                          .shared_bytes = (uint32_t)held_bytes(&a)};
    const char *word = mp_dtype_word(conv->type);
    MP_TRY(is_usual(conv) ? mp_plan_kernel(p, &kernel, "depthwise_planes_%d_%d_%s", a.kernel_h,
                                           a.stride_h, word)
                          : mp_plan_kernel(p, &kernel, "depthwise_planes_any_%s", word));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_planes_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_planes_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_planes_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_planes_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_planes_args, y, operands[MP_CONV_Y]));
}
