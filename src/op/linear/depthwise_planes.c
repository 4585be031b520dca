/* depthwise_planes.c - see depthwise_planes.h.
 * Kernel: linear/depthwise_planes.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/depthwise_planes.h"

#include "kernel/linear/linear_args.h"

enum {
    STRIPS_MAX = 32,        /* of a tile: lanes that a line of it keeps busy */
    HELD_WANTED = 24 << 10, /* bytes of a block at most, so that a multiprocessor has eight */
    BLOCKS_EACH = 2,        /* of a multiprocessor, before a block gets several planes */
    WORD = 4,
    FAR = 1 << 28, /* two distances, added, are an int32_t */
};

/* ---- which ---- */

bool mp_depthwise_planes_takes(const mp_conv *conv) {
    const int64_t size = conv->kernel[0], stride = conv->stride[0];
    const bool is_kept = conv->type == MP_F32 || conv->type == MP_F16 || conv->type == MP_BF16;
    bool fits = is_kept && !conv->transposed && !conv->channels_last && conv->spatial == 2 &&
                conv->groups == conv->in_channels && conv->groups == conv->out_channels &&
                (size == 3 || size == 5 || size == 7) && (stride == 1 || stride == 2) &&
                conv->in_channels <= FAR / conv->batch &&
                (conv->in[0] + 2 * size) * (conv->in[1] + 2 * size) <= FAR;
    for (int d = 0; d < 2; d++) {
        fits = fits && conv->kernel[d] == size && conv->stride[d] == stride &&
               conv->dilation[d] == 1 && conv->in[d] <= FAR / 4 && conv->out[d] <= FAR / 4 &&
               conv->pad_begin[d] <= FAR / 4 && conv->pad_begin[d] >= -FAR / 4;
    }
    return fits;
}

/* ---- how a block's share is cut ---- */

static int32_t held_bytes(const mp_planes_args *a, int64_t size) {
    const int64_t floats = (int64_t)a->in_rows * a->pitch + K_PLANES_TAPS(size);
    return (int32_t)((K_PLANES_BEFORE + a->planes * floats) * (int64_t)sizeof(float));
}

static void set_groups(mp_planes_args *a, const mp_conv *conv, int32_t groups) {
    a->groups = groups;
    a->in_rows =
        K_PLANES_SIDE(groups * K_PLANES_ROWS, (int32_t)conv->kernel[0], (int32_t)conv->stride[0]);
}

/* Tiles of one plane. A line of strips is as long as lanes and the image allow, so that what is
 * read of x twice is little; all tiles of a plane are alike. */
static void cut_plane(mp_planes_args *a, const mp_conv *conv) {
    const int32_t size = (int32_t)conv->kernel[0], stride = (int32_t)conv->stride[0];
    const int32_t strips = MP_CEIL_DIV(a->out_w, K_PLANES_STRIP);
    const int32_t groups = MP_CEIL_DIV(a->out_h, K_PLANES_ROWS);
    a->tiles = MP_CEIL_DIV(strips, STRIPS_MAX);
    a->strips = MP_CEIL_DIV(strips, a->tiles);
    /* A strip reads whole fours of what is held, which this has, too: what lies between the end of
     * a row and the last four is less than four. */
    a->pitch =
        MP_ALIGN_UP(K_PLANES_SIDE(a->strips * K_PLANES_STRIP, size, stride) + K_PLANES_APART, 4);
    int32_t most = MP_MIN(groups, K_PLANES_LANES / a->strips);
    for (set_groups(a, conv, most); most > 1 && held_bytes(a, size) > HELD_WANTED;) {
        set_groups(a, conv, --most);
    }
    a->bands = MP_CEIL_DIV(groups, most);
    set_groups(a, conv, MP_CEIL_DIV(groups, a->bands));
}

/* Small planes share a block, unless then multiprocessors would have none. */
static void join_planes(const mp_planner *p, mp_planes_args *a, const mp_conv *conv) {
    if (a->bands > 1 || a->tiles > 1) {
        return;
    }
    const int32_t blocks = p->device->info.multiprocessors * BLOCKS_EACH;
    const int32_t most = MP_MIN(K_PLANES_LANES / (a->groups * a->strips),
                                HELD_WANTED / held_bytes(a, conv->kernel[0]));
    a->planes = MP_MAX(1, MP_MIN(most, a->all_planes / blocks));
}

/* How many lanes load neighbours: what needs fewest turns. */
static int32_t across_log(const mp_planner *p, const mp_planes_args *a, int64_t columns) {
    int32_t best = 0;
    int64_t fewest = INT64_MAX;
    if (p->device->info.warp == 1) { /* one lane has to do */
        return 0;
    }
    for (int32_t log = 0; 1 << log <= K_PLANES_LANES; log++) {
        const int64_t rows = (int64_t)a->planes * a->in_rows;
        const int64_t turns =
            MP_CEIL_DIV(columns, 1 << log) * MP_CEIL_DIV(rows, K_PLANES_LANES >> log);
        if (turns <= fewest) {
            fewest = turns;
            best = log;
        }
    }
    return best;
}

static mp_planes_args args_of(const mp_planner *p, const mp_conv *conv) {
    const int32_t size = (int32_t)conv->kernel[0], stride = (int32_t)conv->stride[0];
    const int32_t bytes = (int32_t)mp_dtype_size(conv->type);
    mp_planes_args a = {
        .all_planes = (int32_t)(conv->batch * conv->in_channels),
        .channels = (int32_t)conv->in_channels,
        .in_h = (int32_t)conv->in[0],
        .in_w = (int32_t)conv->in[1],
        .out_h = (int32_t)conv->out[0],
        .out_w = (int32_t)conv->out[1],
        .pad_h = (int32_t)conv->pad_begin[0],
        .pad_w = (int32_t)conv->pad_begin[1],
        .planes = 1,
        .words = p->align >= WORD && conv->in[1] * bytes % WORD == 0,
        .packed = p->align >= K_PLANES_STRIP * bytes && conv->out[1] % K_PLANES_STRIP == 0,
        .activation = (int32_t)conv->activation,
        .alpha = conv->alpha,
        .beta = conv->beta,
    };
    cut_plane(&a, conv);
    join_planes(p, &a, conv);
    const int64_t columns = K_PLANES_SIDE(a.strips * K_PLANES_STRIP, size, stride);
    a.across_log =
        across_log(p, &a, a.words && bytes < WORD ? columns * bytes / WORD + 1 : columns);
    a.by_tiles = mp_divider((uint32_t)a.tiles);
    a.by_bands = mp_divider((uint32_t)a.bands);
    a.by_channels = mp_divider((uint32_t)a.channels);
    a.by_groups = mp_divider((uint32_t)a.groups);
    a.by_strips = mp_divider((uint32_t)a.strips);
    a.by_in_rows = mp_divider((uint32_t)a.in_rows);
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
                          .shared_bytes = (uint32_t)held_bytes(&a, conv->kernel[0])};
    MP_TRY(mp_plan_kernel(p, &kernel, "depthwise_planes_%d_%d_%s", (int)conv->kernel[0],
                          (int)conv->stride[0], mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_planes_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_planes_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_planes_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_planes_args, residual, operands[MP_CONV_RESIDUAL]),
                     MP_BIND(mp_planes_args, y, operands[MP_CONV_Y]));
}
