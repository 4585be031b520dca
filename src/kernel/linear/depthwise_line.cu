/* depthwise_line.cu - a convolution of lines with channels last, each channel by itself, by windows
 * of any length and dilation, of stride 1, with what follows it.
 *
 * A block makes a tile of a line for a few channels, or tiles of several short lines. It asks for
 * all pixels that they need and for the taps at once, and holds them in shared memory as they are
 * computed with, zeros beyond the line; of long windows some taps at a time. Then a lane makes a
 * strip of neighbouring pixels of two channels. The pixels under a tap of its window lie in
 * registers: for the next tap one of them is replaced, so that one pixel and one tap are looked up
 * for STRIP products of either channel. Under dilation pixels of one residue class are neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/depthwise_packs.h"

enum {
    STRIP = K_LINE_STRIP,
    CHANNELS = K_LINE_CHANNELS,
    PAIR = K_DEPTHWISE_PAIR,
    PAIRS = K_LINE_PAIRS,
    PACK = K_DEPTHWISE_PACK,
    PACKS = CHANNELS / PACK,
    UNITS = K_LINE_LANES,
    GROUP = 4, /* taps without a branch between them */
};

/* UNITS_EACH: of a lane. AT_ONCE: packs on their way to it, of 80 bytes; TAPS_AT_ONCE beside those;
 * APART: the same where elements come one by one. */
#if K_HOST
#define LANES blockDim.x
enum { UNITS_EACH = UNITS, AT_ONCE = 1, TAPS_AT_ONCE = 1, APART = 1 };
#else
enum {
    LANES = UNITS,
    UNITS_EACH = 1,
    AT_ONCE = 80 / (PACK * sizeof(T)),
    TAPS_AT_ONCE = 2,
    APART = 4
};
#endif

typedef struct K_ALIGN(16) d_four {
    float at[PACK];
} d_four;

/* A block's share: of which lines, from which of their pixels and which channel on. */
typedef struct d_tile {
    int32_t line, pixel, channel;
} d_tile;

/* A line, one of `classes` that an image has. */
typedef struct d_line {
    uint32_t image;
    int32_t first; /* of the image's pixels the tile's first */
    int32_t exists;
} d_line;

K_FN d_tile d_find(const mp_depthwise_line_args *a, uint32_t i) {
    d_tile t;
    const uint32_t place = k_divide(i, a->by_packs);
    const uint32_t lines = k_divide(place, a->by_tiles);
    t.channel = (int32_t)(i - place * (uint32_t)a->packs) * CHANNELS;
    t.pixel = (int32_t)(place - lines * (uint32_t)a->tiles) * STRIP << a->strips_log;
    t.line = (int32_t)(lines << (K_LINE_STRIPS_LOG - a->strips_log));
    return t;
}

/* Of the lanes that a block has those of `unit`, by the tile's lines. */
K_FN int32_t d_slot(const mp_depthwise_line_args *a, uint32_t unit) {
    return (int32_t)(unit / PAIRS >> a->strips_log);
}

K_FN d_line d_line_of(const mp_depthwise_line_args *a, const d_tile *t, int32_t slot) {
    d_line l;
    const uint32_t line = (uint32_t)(t->line + slot);
    l.image = k_divide(line, a->by_classes);
    l.first = (int32_t)(line - l.image * (uint32_t)a->classes) + t->pixel * a->dilation;
    l.exists = (int32_t)line < a->lines;
    return l;
}

/* ---- what is held ---- */

K_FN void d_hold(float *to, d_pack pack) {
    d_four value;
    K_UNROLL
    for (int32_t j = 0; j < PACK / K_WORD; j++) {
        T_unpack(pack.word[j], value.at + j * K_WORD);
    }
    *(d_four *)to = value;
}

/* Channels from `c` of the tile on, in row `i` of bias and taps; NULL where there are none. */
K_FN const T *d_tap(const mp_depthwise_line_args *a, const d_tile *t, int32_t first, int32_t i) {
    const T *from = (const T *)(i > 0 ? a->w : a->bias);
    return from ? from + (i > 0 ? (int64_t)(first + i - 1) * a->channels : 0) + t->channel : 0;
}

/* The bias, and `taps` taps from `first` on. */
K_FN void d_hold_taps(const mp_depthwise_line_args *a, const d_tile *t, int32_t first, int32_t taps,
                      float *held, uint32_t unit) {
    enum { STEP = UNITS / PACKS };
    const int32_t c = (int32_t)(unit % PACKS) * PACK;
    const int has = t->channel + c < a->channels;
    K_ONE_COPY
    for (int32_t i = (int32_t)(unit / PACKS); i <= taps; i += TAPS_AT_ONCE * STEP) {
        d_pack pack[TAPS_AT_ONCE];
        K_UNROLL
        for (int32_t k = 0; k < TAPS_AT_ONCE; k++) {
            const T *from = d_tap(a, t, first, i + k * STEP);
            pack[k] = d_nothing();
            if (has && from && i + k * STEP <= taps) {
                pack[k] = *(const d_pack *)(from + c);
            }
        }
        K_UNROLL
        for (int32_t k = 0; k < TAPS_AT_ONCE; k++) {
            if (i + k * STEP <= taps) {
                d_hold(held + (i + k * STEP) * CHANNELS + c, pack[k]);
            }
        }
    }
}

/* Where a unit's loads of pixels begin, and how they go on. A line's units load it: each some
 * channels of every so manieth row. */
typedef struct d_walk {
    int32_t row, rows, step; /* of what is held of the line */
    int32_t x, far, end;     /* the row's pixel, to the next, the first beyond */
    const T *line;           /* pixel 0 */
    float *to;
} d_walk;

K_FN d_walk d_begin(const mp_depthwise_line_args *a, const d_tile *t, int32_t first, float *held,
                    uint32_t unit, int32_t c, int32_t lanes) {
    const int32_t slot = d_slot(a, unit);
    const d_line line = d_line_of(a, t, slot);
    const int32_t start = line.first - a->pad + first * a->dilation;
    d_walk w;
    w.rows = K_LINE_ROWS(a->held_taps, a->strips_log);
    w.step = (PAIRS << a->strips_log) / lanes;
    w.row = (int32_t)(unit & (uint32_t)((PAIRS << a->strips_log) - 1)) / lanes;
    w.x = start + w.row * a->dilation;
    w.far = w.step * a->dilation;
    w.end = start + w.rows * a->dilation;
    w.end = w.end < a->in ? w.end : a->in;
    w.end = line.exists && w.end > 0 && t->channel + c < a->channels ? w.end : 0;
    w.line = (const T *)a->x + ((int64_t)line.image * a->in * a->channels + t->channel + c);
    w.to = held + (1 + a->held_taps + slot * w.rows + w.row) * CHANNELS + c;
    return w;
}

K_FN void d_fill(const mp_depthwise_line_args *a, const d_tile *t, int32_t first, int32_t taps,
                 float *held, uint32_t unit) {
    const int32_t c = (int32_t)(unit % PACKS) * PACK;
    int begins = 1;
    d_walk w = d_begin(a, t, first, held, unit, c, PACKS);
    const int64_t far = (int64_t)w.far * a->channels;
    const T *from = w.line + (int64_t)w.x * a->channels;
    K_ONE_COPY
    while (w.row < w.rows) {
        d_pack pack[AT_ONCE];
        K_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            pack[k] = d_nothing();
            if ((uint32_t)w.x < (uint32_t)w.end) {
                pack[k] = *(const d_pack *)from;
            }
            w.x += w.far;
            from += far;
        }
        if (begins) { /* while those are on their way */
            d_hold_taps(a, t, first, taps, held, unit);
            begins = 0;
        }
        K_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            if (w.row < w.rows) {
                d_hold(w.to, pack[k]);
            }
            w.row += w.step;
            w.to += w.step * CHANNELS;
        }
    }
}

/* The same where packs are not aligned. */
K_FN void d_fill_apart(const mp_depthwise_line_args *a, const d_tile *t, int32_t first,
                       int32_t taps, float *held, uint32_t unit) {
    enum { ACROSS = PAIRS };
    K_ONE_COPY
    for (uint32_t half = 0; half < CHANNELS; half += ACROSS) {
        const int32_t c = (int32_t)(unit % ACROSS + half);
        d_walk w = d_begin(a, t, first, held, unit, c, ACROSS);
        K_ONE_COPY
        while (w.row < w.rows) {
            T value[APART];
            K_UNROLL
            for (int32_t k = 0; k < APART; k++) {
                value[k] = T_store((TC)0);
                if ((uint32_t)w.x < (uint32_t)w.end) {
                    value[k] = w.line[(int64_t)w.x * a->channels];
                }
                w.x += w.far;
            }
            K_UNROLL
            for (int32_t k = 0; k < APART; k++) {
                if (w.row < w.rows) {
                    *w.to = T_load(value[k]);
                }
                w.row += w.step;
                w.to += w.step * CHANNELS;
            }
        }
        K_ONE_COPY
        for (int32_t i = (int32_t)(unit / ACROSS); i <= taps; i += UNITS / ACROSS) {
            const T *from = d_tap(a, t, first, i);
            held[i * CHANNELS + c] = from && t->channel + c < a->channels ? T_load(from[c]) : 0;
        }
    }
}

/* ---- what is made of it ---- */

/* x[(j + s) % STRIP] is the pixel under tap `j` of pixel `s` of the strip; what tap j needs more
 * than the one before is looked up in any case, and multiplied where the tap is one. */
K_FN void d_step(const float *in, const float *taps, int32_t j, int is_tap, d_two *x, d_two *sums) {
    x[(j + STRIP - 1) % STRIP] = *(const d_two *)(in + (j + STRIP - 1) * CHANNELS);
    if (is_tap) {
        const d_two tap = *(const d_two *)(taps + j * CHANNELS);
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++) {
            sums[s].at[0] += x[(j + s) % STRIP].at[0] * tap.at[0];
            sums[s].at[1] += x[(j + s) % STRIP].at[1] * tap.at[1];
        }
    }
}

/* Adds what `count` taps give to a strip whose first pixel needs what is held from `in` on. They
 * are taken in groups, of which the first begins before `in` to end with one: those are no taps,
 * and not zeros, by which no infinite pixel may be multiplied. */
K_FN void d_sum(const float *in, const float *taps, int32_t count, d_two *sums) {
    const int32_t before = -count & (GROUP - 1);
    int32_t left = count + before - GROUP;
    d_two x[STRIP];
    in -= before * CHANNELS;
    taps -= before * CHANNELS;
    K_UNROLL
    for (int32_t s = 0; s + 1 < STRIP; s++) {
        x[s] = *(const d_two *)(in + s * CHANNELS);
    }
    K_UNROLL
    for (int32_t j = 0; j < GROUP; j++) {
        d_step(in, taps, j, j >= before, x, sums);
    }
    K_ONE_COPY
    for (;;) {
        K_UNROLL
        for (int32_t j = GROUP; j < GROUP + STRIP; j++) {
            if (j % GROUP == 0) {
                if (left == 0) {
                    return;
                }
                left -= GROUP;
            }
            d_step(in, taps, j, 1, x, sums);
        }
        in += STRIP * CHANNELS;
        taps += STRIP * CHANNELS;
    }
}

/* Where a strip lies in y and residual. */
typedef struct d_place {
    int64_t at, far; /* its first pixel, to the next */
    int32_t pixels;  /* that it has */
    int32_t left;    /* channels from there on */
} d_place;

K_FN d_place d_place_of(const mp_depthwise_line_args *a, const d_tile *t, uint32_t unit) {
    const uint32_t strip = unit / PAIRS & ((1u << a->strips_log) - 1);
    const int32_t c = t->channel + (int32_t)(unit % PAIRS) * PAIR;
    const d_line line = d_line_of(a, t, d_slot(a, unit));
    const int32_t pixel = line.first + (int32_t)strip * STRIP * a->dilation;
    const int64_t all = ((int64_t)line.image * a->out + pixel) * a->channels;
    d_place p;
    p.at = all + c;
    p.far = (int64_t)a->dilation * a->channels;
    p.left = line.exists ? a->channels - c : 0;
    p.pixels = 0;
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++) {
        p.pixels += pixel + s * a->dilation < a->out;
    }
    return p;
}

K_FN void d_add(const mp_depthwise_line_args *a, const d_place *p, const T *from, float *sums) {
    if (a->aligned) {
        d_pair pair[STRIP];
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++, from += p->far) {
            K_UNROLL
            for (int32_t j = 0; j < PAIR / K_WORD; j++) {
                pair[s].word[j] = 0;
            }
            if (s < p->pixels) {
                pair[s] = *(const d_pair *)from;
            }
        }
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++) {
            d_two more;
            K_UNROLL
            for (int32_t j = 0; j < PAIR / K_WORD; j++) {
                T_unpack(pair[s].word[j], more.at + j * K_WORD);
            }
            sums[s * PAIR] += more.at[0];
            sums[s * PAIR + 1] += more.at[1];
        }
        return;
    }
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++, from += p->far) {
        K_UNROLL
        for (int32_t i = 0; i < PAIR; i++) {
            sums[s * PAIR + i] += s < p->pixels && i < p->left ? T_load(from[i]) : 0;
        }
    }
}

K_FN void d_put(const mp_depthwise_line_args *a, const d_place *p, T *to, const float *sums) {
    if (a->aligned) {
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++, to += p->far) {
            if (s < p->pixels) {
                d_put_pair((d_pair *)to, sums + s * PAIR);
            }
        }
        return;
    }
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++, to += p->far) {
        K_UNROLL
        for (int32_t i = 0; i < PAIR; i++) {
            if (s < p->pixels && i < p->left) {
                to[i] = T_store(sums[s * PAIR + i]);
            }
        }
    }
}

/* Four at a time, which come to the front in turn: one copy of many functions. */
K_FN void d_activate(const mp_depthwise_line_args *a, float *sums) {
    enum { SOME = 4 };
    if (a->activation == K_ACTIVATE_NONE) {
        return;
    }
    K_ONE_COPY
    for (int32_t turn = 0; turn < STRIP * PAIR / SOME; turn++) {
        d_four some;
        K_UNROLL
        for (int32_t k = 0; k < SOME; k++) {
            some.at[k] = sums[k];
        }
        c_activate_four(a->activation, a->alpha, a->beta, some.at);
        K_UNROLL
        for (int32_t k = 0; k < STRIP * PAIR; k++) {
            sums[k] = k + SOME < STRIP * PAIR ? sums[k + SOME] : some.at[k + SOME - STRIP * PAIR];
        }
    }
}

K_FN void d_finish(const mp_depthwise_line_args *a, const d_place *p, d_two bias, d_two *strip) {
    float *sums = strip[0].at;
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++) {
        strip[s].at[0] += bias.at[0];
        strip[s].at[1] += bias.at[1];
    }
    if (a->residual != 0) {
        d_add(a, p, (const T *)a->residual + p->at, sums);
    }
    d_activate(a, sums);
    d_put(a, p, (T *)a->y + p->at, sums);
}

/* ---- a tile ---- */

K_FN void d_make(const mp_depthwise_line_args *a, const d_tile *t, float *held) {
    d_two sums[UNITS_EACH][STRIP];
    K_UNROLL
    for (int32_t i = 0; i < UNITS_EACH * STRIP; i++) {
        sums[i / STRIP][i % STRIP].at[0] = 0;
        sums[i / STRIP][i % STRIP].at[1] = 0;
    }
    K_ONE_COPY
    for (int32_t first = 0; first < a->taps; first += a->held_taps) {
        const int32_t rest = a->taps - first, taps = rest < a->held_taps ? rest : a->held_taps;
        __syncthreads(); /* what was held has been used */
        for (uint32_t unit = threadIdx.x; unit < UNITS; unit += LANES) {
            if (a->aligned) {
                d_fill(a, t, first, taps, held, unit);
            } else {
                d_fill_apart(a, t, first, taps, held, unit);
            }
        }
        __syncthreads();
        for (uint32_t unit = threadIdx.x; unit < UNITS; unit += LANES) {
            const d_place p = d_place_of(a, t, unit);
            if (p.pixels > 0 && p.left > 0) {
                const int32_t strip = (int32_t)(unit / PAIRS) & ((1 << a->strips_log) - 1);
                const int32_t c = (int32_t)(unit % PAIRS) * PAIR;
                const int32_t line =
                    d_slot(a, unit) * K_LINE_ROWS(a->held_taps, a->strips_log) + strip * STRIP;
                d_sum(held + (1 + a->held_taps + line) * CHANNELS + c, held + CHANNELS + c, taps,
                      sums[unit / LANES]);
            }
        }
    }
    for (uint32_t unit = threadIdx.x; unit < UNITS; unit += LANES) {
        const d_place p = d_place_of(a, t, unit);
        if (p.pixels > 0 && p.left > 0) {
            d_finish(a, &p, *(const d_two *)(held + unit % PAIRS * PAIR), sums[unit / LANES]);
        }
    }
}

K_BLOCK_KERNEL_WITHIN(96, K_LINE_LANES, mp_depthwise_line_args, args) {
    K_SHARED(float, held);
    for (int64_t i = blockIdx.x; i < args.count; i += gridDim.x) {
        const d_tile t = d_find(&args, (uint32_t)i);
        d_make(&args, &t, held);
    }
}
