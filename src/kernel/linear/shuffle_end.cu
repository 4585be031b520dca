/* shuffle_end.cu - the end of a unit of ShuffleNet in one launch: windows of single channels, the
 * product of pixels with a matrix, a Relu, and the result's channels in turns with those of another
 * image, of which both halves go to tensors of their own:
 *
 *     even: e0 e1 e2 ..   made: m0 m1 m2 ..    first: e0 m0 e1 m1 ..   second: .. e2 m2 ..
 *
 * All of it is little work, which as three kernels would be three launches. A block has some pixels
 * and some columns of the matrix; where the matrix has many, blocks of other columns make the same
 * windows again. Its lanes share the sums of a result, which are added in a fixed order. Elements
 * are multiplied as floats. What does not depend on the kernel before is fetched before that ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/word.h"
#include "kernel/linear/shuffle_end_args.h"

enum {
    LANES = K_SHUFFLE_END_LANES,
    PIXELS = K_SHUFFLE_END_PIXELS,
    SIDE = K_SHUFFLE_END_SIDE,
    TAPS = K_SHUFFLE_END_TAPS,
    ROWS = K_SHUFFLE_END_ROWS,
    HELD = K_HOST ? PIXELS << K_SHUFFLE_END_MOST : K_SHUFFLE_END_HELD, /* of a block of few lanes */
    DOWN = 2,   /* a lane's sums: pixels ... */
    ACROSS = 4, /* ... and columns */
    WORDS = K_EACH / K_WORD,
};

/* Neighbouring channels, as they come and as they are computed with. */
typedef struct K_ALIGN(K_EACH * sizeof(T)) pack {
    uint32_t word[WORDS];
} pack;

typedef struct K_ALIGN(K_EACH * sizeof(float)) floats {
    float at[K_EACH];
} floats;

typedef struct K_ALIGN(8) two {
    float at[2];
} two;

typedef struct K_ALIGN(16) four {
    float at[ACROSS];
} four;

typedef struct K_ALIGN(2 * sizeof(T)) pair {
    T at[2];
} pair;

/* What a block has. */
typedef struct work {
    const mp_shuffle_end_args *args;
    float *taps, *matrix, *sums, *pixels;
    int32_t pixel, column; /* the first */
} work;

K_FN work work_of(const mp_shuffle_end_args *a, float *shared) {
    work w;
    const uint32_t tile = k_divide(blockIdx.x, a->by_tiles);
    w.args = a;
    w.matrix = shared; /* first what is read 16 bytes at a time */
    w.taps = w.matrix + (a->channels << a->columns_log);
    w.sums = w.taps + ROWS * a->channels;
    w.pixels = w.sums + K_SHUFFLE_END_SUMS;
    w.pixel = (int32_t)tile * PIXELS;
    w.column = (int32_t)(blockIdx.x - tile * (uint32_t)a->column_tiles) << a->columns_log;
    return w;
}

/* ---- constants ---- */

/* Pairs of neighbours that a lane has on their way, of the matrix and of the windows. */
enum { AT_ONCE = 8 };

typedef struct fetched {
    pair matrix[AT_ONCE], taps[AT_ONCE];
} fetched;

/* Pairs of either, columns beyond the last included. */
K_FN int32_t matrix_pairs(const work *w) {
    return w->args->channels << (w->args->columns_log - 1);
}

K_FN int32_t taps_pairs(const work *w) {
    return ROWS * w->args->channels / 2;
}

/* Where there is no pair, another one. */
K_FN void ask_constants(const work *w, int32_t first, fetched *f) {
    const mp_shuffle_end_args *a = w->args;
    const int32_t log = a->columns_log - 1, last = (a->columns - w->column) / 2 - 1;
    const pair *matrix = (const pair *)((const T *)a->matrix + w->column);
    const pair *taps = (const pair *)a->taps;
    K_UNROLL
    for (int32_t j = 0; j < AT_ONCE; j++) {
        const int32_t i = first + j * (int32_t)blockDim.x;
        const int32_t at = i < matrix_pairs(w) ? i : 0, column = at & ((1 << log) - 1);
        f->matrix[j] = matrix[(at >> log) * (a->columns / 2) + (column < last ? column : last)];
        f->taps[j] = taps[i < taps_pairs(w) ? i : 0];
    }
}

K_FN void put_pair(pair from, float *to) {
    two both;
    both.at[0] = T_load(from.at[0]);
    both.at[1] = T_load(from.at[1]);
    *(two *)to = both;
}

K_FN void put_constants(const work *w, int32_t first, const fetched *f) {
    K_UNROLL
    for (int32_t j = 0; j < AT_ONCE; j++) {
        const int32_t i = first + j * (int32_t)blockDim.x;
        if (i < matrix_pairs(w)) {
            put_pair(f->matrix[j], w->matrix + 2 * i);
        }
        if (i < taps_pairs(w)) {
            put_pair(f->taps[j], w->taps + 2 * i);
        }
    }
}

/* What one round leaves. */
K_FN void fetch_others(const work *w) {
    const int32_t round = AT_ONCE * (int32_t)blockDim.x;
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x + round; i < matrix_pairs(w) || i < taps_pairs(w);
         i += round) {
        fetched f;
        ask_constants(w, i, &f);
        put_constants(w, i, &f);
    }
}

/* ---- windows ---- */

/* Neighbouring channels of a pixel's window, on their way. */
typedef struct window {
    pack in[TAPS];
    uint32_t inside; /* a bit for each */
    int32_t pixel, channel;
} window;

K_FN int32_t packs_of(const work *w) {
    return w->args->channels / K_EACH;
}

/* The pack of this number, over the block's pixels. All of the window is asked for before any of it
 * is looked at: what lies beyond the image, or the last pixel, is another pixel that is not taken.
 */
K_FN window ask_window(const work *w, int32_t i) {
    const mp_shuffle_end_args *a = w->args;
    const uint32_t n = k_divide((uint32_t)i, a->by_packs);
    window asked;
    asked.pixel = (int32_t)n;
    asked.channel = (i - (int32_t)n * packs_of(w)) * K_EACH;
    asked.inside = 0;
    const int is_pixel = w->pixel + asked.pixel < a->pixels;
    const uint32_t pixel = (uint32_t)(is_pixel ? w->pixel + asked.pixel : 0);
    const uint32_t line = k_divide(pixel, a->by_width), image = k_divide(line, a->by_height);
    const int32_t y = (int32_t)(line - image * (uint32_t)a->out_height) * a->stride[0] - a->pad[0];
    const int32_t x = (int32_t)(pixel - line * (uint32_t)a->out_width) * a->stride[1] - a->pad[1];
    const T *from =
        (const T *)a->x + (int64_t)image * a->height * a->width * a->channels + asked.channel;
    K_UNROLL
    for (int32_t t = 0; t < TAPS; t++) {
        const int32_t row = y + t / SIDE, column = x + t % SIDE;
        const int32_t r = row < 0 ? 0 : row < a->height ? row : a->height - 1;
        const int32_t c = column < 0 ? 0 : column < a->width ? column : a->width - 1;
        asked.in[t] = *(const pack *)(from + (r * a->width + c) * a->channels);
        asked.inside |= (uint32_t)(is_pixel && r == row && c == column) << t;
    }
    return asked;
}

/* Results are rounded, as those of a convolution are. */
K_FN void make_window(const work *w, const window *asked) {
    const mp_shuffle_end_args *a = w->args;
    const float *taps = w->taps + asked->channel;
    float *to = w->pixels + asked->pixel * K_SHUFFLE_END_LINE(a->channels) + asked->channel;
    floats made = *(const floats *)(taps + TAPS * a->channels);
    K_UNROLL
    for (int32_t t = 0; t < TAPS; t++) {
        const floats tap = *(const floats *)(taps + t * a->channels);
        float values[K_EACH];
        K_UNROLL
        for (int j = 0; j < WORDS; j++) {
            T_unpack((asked->inside >> t & 1) != 0 ? asked->in[t].word[j] : 0, values + j * K_WORD);
        }
        K_UNROLL
        for (int e = 0; e < K_EACH; e++) {
            made.at[e] += values[e] * tap.at[e];
        }
    }
    K_UNROLL
    for (int j = 0; j < WORDS; j++) {
        T_unpack(T_repack(made.at + j * K_WORD), made.at + j * K_WORD);
    }
    K_UNROLL
    for (int e = 0; e < K_EACH; e++) {
        to[e] = made.at[e];
    }
}

/* All of the block's, of which `asked` is this lane's first one. */
K_FN void make_pixels(const work *w, window asked) {
    const int32_t count = PIXELS * packs_of(w);
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < count;) {
        make_window(w, &asked);
        i += (int32_t)blockDim.x;
        if (i < count) {
            asked = ask_window(w, i);
        }
    }
}

/* ---- the product ---- */

/* Shares of one part of the channels have all results of the block among them, and there are as
 * many parts as that leaves. */
K_FN void multiply_share(const work *w, int32_t share) {
    const mp_shuffle_end_args *a = w->args;
    const int32_t log = a->columns_log, shares = PIXELS / DOWN << (log - 2);
    const int32_t at = share & (shares - 1), part = share / shares, parts = LANES / shares;
    const int32_t column = (at & ((1 << (log - 2)) - 1)) * ACROSS, row = (at >> (log - 2)) * DOWN;
    const int32_t pitch = K_SHUFFLE_END_LINE(a->channels);
    const float *pixel = w->pixels + row * pitch, *matrix = w->matrix + column;
    float sum[DOWN][ACROSS] = {{0}};
    for (int32_t k = part; k < a->channels; k += parts) {
        const four b = *(const four *)(matrix + (k << log));
        K_UNROLL
        for (int d = 0; d < DOWN; d++) {
            const float v = pixel[d * pitch + k];
            K_UNROLL
            for (int c = 0; c < ACROSS; c++) {
                sum[d][c] += v * b.at[c];
            }
        }
    }
    K_UNROLL
    for (int d = 0; d < DOWN; d++) {
        four made;
        K_UNROLL
        for (int c = 0; c < ACROSS; c++) {
            made.at[c] = sum[d][c];
        }
        *(four *)(w->sums + (part * PIXELS + row + d) * (1 << log) + column) = made;
    }
}

K_FN void multiply(const work *w) {
    K_ONE_COPY
    for (uint32_t share = threadIdx.x; share < LANES; share += blockDim.x) {
        multiply_share(w, (int32_t)share);
    }
}

/* ---- results ---- */

/* A lane's result of this number, if it is one. */
typedef struct result {
    int32_t is, pixel, column;
} result;

K_FN result result_of(const work *w, int32_t r) {
    const int32_t log = w->args->columns_log, i = (int32_t)(threadIdx.x + (uint32_t)r * blockDim.x);
    result at;
    at.pixel = w->pixel + (i >> log);
    at.column = w->column + (i & ((1 << log) - 1));
    at.is = i < PIXELS << log && at.pixel < w->args->pixels && at.column < w->args->columns;
    return at;
}

/* The parts that a product has at least. */
enum { PARTS_LEAST = LANES >> K_SHUFFLE_END_MOST };

K_FN float finish(const work *w, int32_t r, float bias) {
    const int32_t all = PIXELS << w->args->columns_log, parts = K_SHUFFLE_END_SUMS / all;
    const float *from = w->sums + threadIdx.x + (uint32_t)r * blockDim.x;
    float sum = bias;
    K_ONE_COPY
    for (int32_t p = 0; p < parts; p += PARTS_LEAST) {
        K_UNROLL
        for (int32_t j = 0; j < PARTS_LEAST; j++) {
            sum += from[(p + j) * all];
        }
    }
    return sum < 0 ? 0 : sum; /* this order keeps NaN */
}

K_FN void write_pair(const work *w, result at, T even, T odd) {
    const mp_shuffle_end_args *a = w->args;
    const int32_t behind = at.column - a->first_pairs;
    const int64_t first = (int64_t)at.pixel * a->first_pairs + at.column;
    const int64_t second = (int64_t)at.pixel * (a->columns - a->first_pairs) + behind;
    T *to = behind < 0 ? (T *)a->first + 2 * first : (T *)a->second + 2 * second;
    if (a->in_pairs) {
        pair both;
        both.at[0] = even;
        both.at[1] = odd;
        *(pair *)to = both;
        return;
    }
    to[0] = even;
    to[1] = odd;
}

K_BLOCK_KERNEL_LATE_OF(K_SHUFFLE_END_LANES, 2, mp_shuffle_end_args, args) {
    K_SHARED(float, shared);
    const work w = work_of(&args, shared);
    const int32_t lane = (int32_t)threadIdx.x, packs = PIXELS * packs_of(&w);
    float bias[HELD];
    T even[HELD];
    fetched constants;
    if (!args.constant) {
        k_wait();
    }
    ask_constants(&w, lane, &constants);
    K_UNROLL
    for (int32_t r = 0; r < HELD; r++) {
        const result at = result_of(&w, r);
        bias[r] = at.is && args.bias != 0 ? T_load(((const T *)args.bias)[at.column]) : 0;
    }
    k_wait();
    const window first = ask_window(&w, lane < packs ? lane : 0);
    K_UNROLL
    for (int32_t r = 0; r < HELD; r++) {
        const result at = result_of(&w, r);
        even[r] = ((const T *)args.even)[at.is ? (int64_t)at.pixel * args.columns + at.column : 0];
    }
    put_constants(&w, lane, &constants);
    fetch_others(&w);
    __syncthreads();
    make_pixels(&w, first);
    __syncthreads();
    multiply(&w);
    __syncthreads();
    K_UNROLL
    for (int32_t r = 0; r < HELD; r++) {
        const result at = result_of(&w, r);
        if (at.is) {
            write_pair(&w, at, even[r], T_store(finish(&w, r, bias[r])));
        }
    }
}
