/* conv_stem_cut.c - see conv_stem_cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_stem_cut.h"

#include "base/macros.h"
#include "op/core/shape.h"

enum {
    CHANNELS_IN_MAX = 4,
    CHANNELS_MAX = 128, /* that leave: beyond, a library has enough to do */
    TAPS_MAX = 1024,
    HELD_MAX = 96 << 10, /* bytes of a block, so that a large multiprocessor has two */
    WIDE = 64,
    NARROW = 32,
    WORD = 4,
    FAR = 1 << 28, /* two distances, added, are an int32_t */
    NEAR = 1 << 14,
    LANES = 32,
    BANKS = 32,
    COLUMNS_LOG_MIN = 3, /* K_STEM_RUN */
    STEPS_LOOKED_AT = 8, /* for conflicts of banks: the rest is much the same */
};

static_assert(1 << COLUMNS_LOG_MIN == K_STEM_RUN, "a run is within a row of its tile");

/* Elements of a word. */
static int32_t width_of(const mp_conv *conv) {
    return WORD / (int32_t)mp_dtype_size(conv->type);
}

int32_t mp_stem_wide(const mp_conv *conv) {
    return (conv->out_channels - 1) % WIDE < NARROW ? NARROW : WIDE;
}

/* ---- which ---- */

static bool is_kind(const mp_conv *conv) {
    const bool is_kept =
        conv->type == MP_F16 || conv->type == MP_BF16 || (conv->type == MP_F32 && conv->tf32);
    return is_kept && !conv->transposed && conv->groups == 1 && conv->spatial <= 2 &&
           !conv->residual && conv->batch >= 1 && conv->in_channels >= 1 &&
           conv->in_channels <= CHANNELS_IN_MAX && conv->out_channels >= 1 &&
           conv->out_channels <= CHANNELS_MAX;
}

/* Products of what passes are far from overflow. */
static bool fits(const mp_conv *conv) {
    int64_t taps = conv->in_channels, in = conv->in_channels;
    for (int d = 0; d < conv->spatial; d++) {
        if (conv->kernel[d] < 1 || conv->kernel[d] > TAPS_MAX || conv->stride[d] > NEAR ||
            conv->dilation[d] > NEAR || conv->in[d] < 1 || conv->in[d] > FAR / in ||
            conv->out[d] < 1 || conv->out[d] > FAR / CHANNELS_IN_MAX / conv->stride[d] ||
            conv->pad_begin[d] > FAR / CHANNELS_IN_MAX ||
            conv->pad_begin[d] < -FAR / CHANNELS_IN_MAX) {
            return false;
        }
        taps *= conv->kernel[d];
        in *= conv->in[d];
    }
    return taps <= TAPS_MAX;
}

/* ---- numbers of the whole ---- */

/* One dimension is an image of one row. */
static void set_sizes(const mp_conv *conv, mp_stem_args *a) {
    const int h = 0, w = conv->spatial - 1;
    const bool flat = conv->spatial == 1;
    a->in_channels = (int32_t)conv->in_channels;
    a->channels = (int32_t)conv->out_channels;
    a->in_h = flat ? 1 : (int32_t)conv->in[h];
    a->in_w = (int32_t)conv->in[w];
    a->out_h = flat ? 1 : (int32_t)conv->out[h];
    a->out_w = (int32_t)conv->out[w];
    a->kernel_h = flat ? 1 : (int32_t)conv->kernel[h];
    a->kernel_w = (int32_t)conv->kernel[w];
    a->stride_h = flat ? 1 : (int32_t)conv->stride[h];
    a->stride_w = (int32_t)conv->stride[w];
    a->dilation_h = flat ? 1 : (int32_t)conv->dilation[h];
    a->dilation_w = (int32_t)conv->dilation[w];
    a->pad_h = flat ? 0 : (int32_t)conv->pad_begin[h];
    a->pad_w = (int32_t)conv->pad_begin[w];
}

static void set_orders(const mp_conv *conv, mp_stem_form form, mp_stem_args *a) {
    const int32_t bytes = (int32_t)mp_dtype_size(conv->type), wide = mp_stem_wide(conv);
    a->pixel = form.x_last ? a->in_channels : 1;
    a->x_row = a->in_w * a->pixel;
    a->x_plane = form.x_last ? 1 : a->in_h * a->in_w;
    a->x_image = (int64_t)a->in_channels * a->in_h * a->in_w;
    a->y_image = (int64_t)a->channels * a->out_h * a->out_w;
    a->w_last = form.w_last;
    a->y_last = form.y_last;
    a->loads_words = conv->align >= WORD && a->x_row * bytes % WORD == 0;
    const int32_t together = form.y_last ? wide / 8 : K_STEM_RUN; /* what a lane has side by side */
    a->packed = conv->align >= MP_MIN(16, together * bytes) &&
                (form.y_last ? a->channels : a->out_w) % together == 0;
    a->activation = (int32_t)conv->activation;
    a->alpha = conv->alpha;
    a->beta = conv->beta;
}

static void set_sums(const mp_conv *conv, mp_stem_args *a) {
    const int32_t lines = a->in_channels * a->kernel_h;
    a->taps = lines * a->kernel_w;
    a->line_words = MP_CEIL_DIV(a->kernel_w, width_of(conv));
    a->words = lines * a->line_words;
    a->steps = MP_CEIL_DIV(a->words, K_STEM_STEP);
    a->groups = MP_CEIL_DIV(a->channels, mp_stem_wide(conv));
}

/* ---- tiles ---- */

int64_t mp_stem_held(const mp_conv *conv, const mp_stem_args *a) {
    const int64_t wide = mp_stem_wide(conv);
    const int64_t weights = a->groups * wide * (a->steps * K_STEM_STEP + 1); /* and the bias */
    const int64_t image = (int64_t)(a->lines + a->pixels / LANES) * a->pitch;
    return WORD * (a->steps * K_STEM_TABLE + weights +
                   K_STEM_PLACES((int64_t)a->in_columns * a->pixel) + image);
}

/* `words` of a row of a channel. Channels lie as they do in memory, so that all lines are alike. */
static void set_pitch(mp_stem_args *a, int32_t words) {
    const bool is_last = a->pixel > 1;
    a->pitch = is_last ? a->in_channels * words : words;
    a->plane = is_last ? words : a->in_rows * words;
}

/* False where what a tile sees is too large to be counted. */
static bool set_tile(mp_stem_args *a, int32_t columns_log) {
    const int64_t columns = 1 << columns_log, rows = a->pixels >> columns_log;
    const int64_t in_rows =
        (rows - 1) * a->stride_h + (int64_t)(a->kernel_h - 1) * a->dilation_h + 1;
    const int64_t in_columns =
        (columns - 1) * a->stride_w + (int64_t)(a->kernel_w - 1) * a->dilation_w + 1;
    if (in_rows > HELD_MAX || in_columns > HELD_MAX || in_rows * in_columns > HELD_MAX) {
        return false;
    }
    a->columns_log = columns_log;
    a->across = MP_CEIL_DIV(a->out_w, (int32_t)columns);
    a->down = MP_CEIL_DIV(a->out_h, (int32_t)rows);
    a->in_rows = (int32_t)in_rows;
    a->in_columns = (int32_t)in_columns;
    a->lines = a->in_rows * (a->pixel > 1 ? 1 : a->in_channels);
    a->rest = MP_CEIL_DIV(a->in_columns, a->stride_w);
    a->aside_log = 0;
    while (a->lines << a->aside_log < a->pixels / LANES) {
        a->aside_log++;
    }
    set_pitch(a, a->rest * a->stride_w);
    return true;
}

/* What the tiles of an image cost, in instructions of a lane, as the kernel's text has them. */
static int64_t cost_of(const mp_conv *conv, const mp_stem_args *a) {
    enum { OF_LOAD = 22, OF_STEP = 45, OF_GROUP = 150, OF_TILE = 100 };
    const int32_t each = a->loads_words ? width_of(conv) : 1;
    const int64_t turns = MP_CEIL_DIV(a->in_columns * a->pixel + each - 1, LANES * each);
    const int64_t fill = MP_CEIL_DIV(a->lines * turns, a->pixels / LANES) * OF_LOAD;
    const int64_t sums = (int64_t)a->groups * (a->steps * OF_STEP + OF_GROUP);
    return (int64_t)a->across * a->down * (fill + sums + OF_TILE);
}

static bool cut_image(const mp_conv *conv, mp_stem_args *a) {
    int64_t least = INT64_MAX;
    int32_t best = 0;
    for (int32_t log = COLUMNS_LOG_MIN; 1 << log <= a->pixels; log++) {
        const bool is_one = set_tile(a, log) && mp_stem_held(conv, a) <= HELD_MAX;
        if (is_one && cost_of(conv, a) < least) {
            least = cost_of(conv, a);
            best = log;
        }
    }
    return best > 0 && set_tile(a, best);
}

/* ---- from a row to the next, so that lanes of a warp read other banks ---- */

/* Where word `q` of the sum lies from a pixel's first on. */
static int32_t word_at(const mp_conv *conv, const mp_stem_args *a, int32_t q) {
    const int32_t line = q / a->line_words, channel = line / a->kernel_h;
    const int32_t column = (q - line * a->line_words) * width_of(conv) * a->dilation_w;
    return channel * a->plane + (line - channel * a->kernel_h) * a->dilation_h * a->pitch +
           column % a->stride_w * a->rest + column / a->stride_w;
}

/* How many turns of shared memory a load of words q to q + 3 takes. */
static int turns_of(const mp_conv *conv, const mp_stem_args *a, int32_t q) {
    int32_t at[LANES];
    int count[BANKS] = {0}, most = 1;
    for (int lane = 0; lane < LANES; lane++) {
        const int32_t g = lane / 4, word = MP_MIN(q + lane % 4, a->words - 1);
        const int32_t pixel = g / 2 * K_STEM_RUN;
        const int32_t row = pixel >> a->columns_log, column = pixel & ((1 << a->columns_log) - 1);
        bool is_new = true;
        at[lane] = row * a->stride_h * a->pitch + column + g % 2 + word_at(conv, a, word);
        for (int other = 0; other < lane; other++) {
            is_new = is_new && at[other] != at[lane];
        }
        count[at[lane] % BANKS] += is_new;
        most = MP_MAX(most, count[at[lane] % BANKS]);
    }
    return most;
}

static void choose_pitch(const mp_conv *conv, mp_stem_args *a) {
    const int32_t tight = a->rest * a->stride_w,
                  words = MP_MIN(a->words, STEPS_LOOKED_AT * K_STEM_STEP);
    int32_t best = tight;
    int fewest = INT32_MAX;
    for (int32_t row = tight; row < tight + BANKS; row++) {
        int turns = 0;
        set_pitch(a, row);
        for (int32_t q = 0; q < words && turns < fewest; q += 4) {
            turns += turns_of(conv, a, q);
        }
        if (turns < fewest && mp_stem_held(conv, a) <= HELD_MAX) {
            fewest = turns;
            best = row;
        }
    }
    set_pitch(a, best);
}

/* ---- all ---- */

static void set_dividers(mp_stem_args *a) {
    a->by_across = mp_divider((uint32_t)a->across);
    a->by_down = mp_divider((uint32_t)a->down);
    a->by_in_rows = mp_divider((uint32_t)a->in_rows);
    a->by_pixel = mp_divider((uint32_t)a->pixel);
    a->by_stride_w = mp_divider((uint32_t)a->stride_w);
    a->by_taps = mp_divider((uint32_t)a->taps);
    a->by_in_channels = mp_divider((uint32_t)a->in_channels);
    a->by_kernel_h = mp_divider((uint32_t)a->kernel_h);
    a->by_kernel_w = mp_divider((uint32_t)a->kernel_w);
    a->by_line_words = mp_divider((uint32_t)a->line_words);
}

bool mp_stem_cut(const mp_conv *conv, mp_stem_form form, int32_t lanes, mp_stem_args *out) {
    mp_stem_args a = {.pixels = lanes};
    if (!is_kind(conv) || !fits(conv)) {
        return false;
    }
    set_sizes(conv, &a);
    set_orders(conv, form, &a);
    set_sums(conv, &a);
    if (!cut_image(conv, &a) || conv->batch > INT32_MAX / ((int64_t)a.across * a.down)) {
        return false;
    }
    choose_pitch(conv, &a);
    set_dividers(&a);
    a.count = (int32_t)conv->batch * a.across * a.down;
    *out = a;
    return true;
}
