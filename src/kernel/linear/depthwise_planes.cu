/* depthwise_planes.cu - a convolution of images with channels first, each channel by itself, by a
 * square kernel of side K_SIZE and of K_STRIDE, with what follows it; with K_SIZE 0 by any kernel.
 *
 * A block makes some rows of a plane, or several small planes. It asks for all that they need and
 * for the taps at once, and holds them in shared memory as they are computed with, zeros beyond the
 * image; so it waits for memory once, and needs no image of a certain width. What is held begins
 * with what the first output needs, so that 16 bytes at a time are read of it whatever the padding
 * is. Then a lane makes ROWS x STRIP neighbouring outputs: a row of x that it reads is used for all
 * taps and all its outputs. By any kernel its outputs of a row lie `strips` apart, so that
 * neighbouring lanes read and write neighbours, one tap after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/core/word.h"
#include "kernel/linear/conv_tail.h"

enum { STRIP = K_PLANES_STRIP, ROWS = K_PLANES_ROWS };

/* Sizes: constants, or what the arguments say. */
#if K_SIZE > 0
enum {
    TAPS = K_SIZE * K_SIZE,
    TAP_PITCH = K_PLANES_TAPS(TAPS),
    STRIDE_H = K_STRIDE,
    STRIDE_W = K_STRIDE,
    APART = 1,                                                /* neighbouring outputs of a lane */
    ACROSS = STRIP,                                           /* neighbouring lanes */
    FOURS = (K_PLANES_SIDE(STRIP, K_SIZE, K_STRIDE) + 3) / 4, /* of a row, that a strip needs */
    /* Few where memory is the bound: more blocks. */
    REGISTERS = K_SIZE == 5 && K_STRIDE == 1 ? 64 : 40 + 8 * K_SIZE,
};
#define D_PLANE(i) ((i) / (TAPS + 1))
#else
#define TAPS       (a->taps)
#define TAP_PITCH  K_PLANES_TAPS(a->taps)
#define STRIDE_H   (a->stride_h)
#define STRIDE_W   (a->stride_w)
#define APART      (a->strips)
#define ACROSS     1
#define D_PLANE(i) k_divide(i, a->by_taps)
enum { REGISTERS = 64 };
#endif

#if K_HOST
#define LANES         blockDim.x
#define AT_ONCE(each) 1
enum { TAPS_AT_ONCE = 1 };
#else
#define AT_ONCE(each) K_PLANES_AT_ONCE(each)
enum { LANES = K_PLANES_LANES, TAPS_AT_ONCE = 4 };
#endif

typedef struct K_ALIGN(16) d_four {
    float at[4];
} d_four;

/* Outputs of a strip, as they are stored. */
typedef struct K_ALIGN(sizeof(T) * STRIP) d_pack {
    uint32_t word[STRIP / K_WORD];
} d_pack;

/* A block's share. */
typedef struct d_tile {
    int32_t plane, planes; /* the first, and how many */
    int32_t row, column;   /* of the first output */
    uint32_t taps;         /* of all planes, with their biases */
} d_tile;

K_FN d_tile d_find(const mp_planes_args *a, uint32_t i) {
    d_tile t;
    const uint32_t line = k_divide(i, a->by_tiles);
    const uint32_t block = k_divide(line, a->by_bands);
    t.plane = (int32_t)block * a->planes;
    t.planes = a->all_planes - t.plane < a->planes ? a->all_planes - t.plane : a->planes;
    t.row = (int32_t)(line - block * (uint32_t)a->bands) * a->groups * ROWS;
    t.column = (int32_t)(i - line * (uint32_t)a->tiles) * a->strips * STRIP;
    t.taps = (uint32_t)(t.planes * (TAPS + 1));
    return t;
}

/* ---- what is held ---- */

/* Some of the taps of all planes, each plane's with its bias behind: `i` and others LANES apart. As
 * they are stored: to convert them is to wait for them, which the image must not. */
typedef struct d_taps {
    T value[TAPS_AT_ONCE];
} d_taps;

K_FN d_taps d_ask(const mp_planes_args *a, const d_tile *t, uint32_t i) {
    d_taps taps;
    K_UNROLL
    for (uint32_t j = 0; j < TAPS_AT_ONCE; j++, i += LANES) {
        const uint32_t plane = D_PLANE(i), k = i - plane * (uint32_t)(TAPS + 1);
        const uint32_t all = (uint32_t)t->plane + plane;
        const uint32_t c = all - k_divide(all, a->by_channels) * (uint32_t)a->channels;
        const T *from = (const T *)(k < (uint32_t)TAPS ? a->w : a->bias);
        taps.value[j] = T_store((TC)0);
        if (i < t->taps && from != 0) {
            taps.value[j] = from[k < (uint32_t)TAPS ? (int64_t)c * TAPS + k : c];
        }
    }
    return taps;
}

K_FN void d_keep(const mp_planes_args *a, const d_tile *t, uint32_t i, const d_taps *taps,
                 float *held) {
    (void)a; /* where sizes are constants */
    K_UNROLL
    for (uint32_t j = 0; j < TAPS_AT_ONCE; j++, i += LANES) {
        const uint32_t plane = D_PLANE(i);
        if (i < t->taps) {
            held[plane * TAP_PITCH + (i - plane * (uint32_t)(TAPS + 1))] = T_load(taps->value[j]);
        }
    }
}

/* What a lane loads at a time: one element, a word of them, or two words. */
K_FN uint64_t d_read(const T *at, int32_t each) {
    return each * (int32_t)sizeof(T) == 8 ? *(const uint64_t *)(const void *)at
           : sizeof(T) == 2 && each == 1  ? *(const uint16_t *)at
                                          : *(const uint32_t *)(const void *)at;
}

/* Four elements of 16 bits, from element `turn` on, those before it at the end. */
K_FN uint64_t d_turned(uint64_t four, uint32_t turn) {
#if K_PTX
    const uint32_t low = (uint32_t)four, high = (uint32_t)(four >> 32);
    const uint32_t bytes = (0x3210u + turn * 0x2222u) & 0x7777u;
    return __byte_perm(low, high, bytes) | (uint64_t)__byte_perm(high, low, bytes) << 32;
#else
    const uint32_t bits = turn * 16;
    return four >> bits | four << (-bits & 63);
#endif
}

/* Keeps an address in registers: the compiler would have each load wait for it once more. */
K_FN const T *d_hold(const T *at) {
#if K_PTX
    asm volatile("" : "+l"(at));
    __builtin_assume(__isGlobal(at));
#endif
    return at;
}

/* Of x that is loaded next: a row of what is held, from the tile's first plane on. */
typedef struct d_row {
    int32_t row, y; /* of all rows; in the image, from its top on */
    uint32_t at;    /* where it lies in x; wraps, and back */
} d_row;

/* From a lane's row to its next one, `down` below. Without a division. */
typedef struct d_step {
    int32_t down, y, end; /* end: what y of a plane stays below */
    uint32_t at, wrap;    /* wrap: to the next plane's row that is held first */
} d_step;

K_FN d_row d_begin(const mp_planes_args *a, const d_tile *t, int32_t row, int32_t x) {
    const int32_t top = t->row * STRIDE_H - a->pad_h;
    const int32_t plane = (int32_t)k_divide((uint32_t)row, a->by_in_rows);
    d_row r;
    r.row = row;
    r.y = top + row - plane * a->in_rows;
    r.at = (uint32_t)(plane * a->in_h + r.y) * (uint32_t)a->in_w + (uint32_t)x;
    return r;
}

K_FN d_step d_step_of(const mp_planes_args *a, const d_tile *t, int32_t down) {
    const int32_t planes = (int32_t)k_divide((uint32_t)down, a->by_in_rows);
    d_step s;
    s.down = down;
    s.y = down - planes * a->in_rows;
    s.end = t->row * STRIDE_H - a->pad_h + a->in_rows;
    s.at = (uint32_t)(planes * a->in_h + s.y) * (uint32_t)a->in_w;
    s.wrap = (uint32_t)(a->in_h - a->in_rows) * (uint32_t)a->in_w;
    return s;
}

K_FN void d_next(const mp_planes_args *a, const d_step *s, d_row *r) {
    r->row += s->down;
    r->y += s->y;
    r->at += s->at;
    if (r->y >= s->end) {
        r->y -= a->in_rows;
        r->at += s->wrap;
    }
}

/* With `each` elements of x a load: several where all rows of x begin at multiples of so many, so
 * that no load has elements of two rows. An element beyond either end of a row is held between
 * the rows, where nobody looks. Lanes are dealt in rows of 2^across_log.
 *
 * Of four elements each store puts one, so neighbouring lanes' lie four floats apart and every
 * eighth lane's in the same bank. Each eight lanes therefore begin with another of their four. */
K_FN void d_fill(const mp_planes_args *a, const d_tile *t, float *held, int32_t each) {
    const int32_t left = t->column * STRIDE_W - a->pad_w, skew = left & (each - 1);
    const int32_t rows = t->planes * a->in_rows, lane = (int32_t)threadIdx.x;
    const int32_t across = 1 << a->across_log;
    const int32_t spare = lane * K_PLANES_SPARE - K_PLANES_BEFORE; /* a place of the lane's own */
    const d_step step = d_step_of(a, t, (int32_t)LANES >> a->across_log);
    const T *image = d_hold((const T *)a->x + (int64_t)t->plane * a->in_h * a->in_w);
    K_ONE_COPY
    for (int32_t to = (lane & (across - 1)) * each - skew; to < a->columns; to += across * each) {
        const int is_column = (uint32_t)(left + to) < (uint32_t)a->in_w;
        d_row r = d_begin(a, t, lane >> a->across_log, left + to);
        const uint32_t four = (uint32_t)(r.row * a->pitch + to + skew) / 4;
        const uint32_t turn = each == 4 ? four / 8 % 4 : 0;
        float *put[2 * K_WORD];
        K_UNROLL
        for (uint32_t e = 0; e < (uint32_t)each; e++) {
            put[e] = held + (e + turn) % (uint32_t)each;
        }
        K_ONE_COPY
        while (r.row < rows) {
            uint64_t raw[AT_ONCE(1)];
            int32_t row = r.row;
            K_UNROLL
            for (int32_t j = 0; j < AT_ONCE(each); j++) {
                raw[j] = 0;
                if (is_column & (r.row < rows) & ((uint32_t)r.y < (uint32_t)a->in_h)) {
                    raw[j] = d_read(image + r.at, each);
                }
                d_next(a, &step, &r);
            }
            int32_t at = row * a->pitch + to;
            K_UNROLL
            for (int32_t j = 0; j < AT_ONCE(each); j++) {
                float value[2 * K_WORD];
                const uint64_t turned = each == 4 ? d_turned(raw[j], turn) : raw[j];
                T_unpack((uint32_t)turned, value);
                T_unpack((uint32_t)(turned >> 32), value + K_WORD);
                /* Not under the condition of the load, or each would wait for its own. */
                const int32_t place = row < rows ? at : spare;
                K_UNROLL
                for (int32_t e = 0; e < each; e++) {
                    put[e][place] = value[e];
                }
                row += step.down;
                at += step.down * a->pitch;
            }
        }
    }
}

/* ---- what is made of it ---- */

K_FN void d_clear(d_four *sums) {
    K_UNROLL
    for (int32_t r = 0; r < ROWS; r++) {
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++) {
            sums[r].at[s] = 0;
        }
    }
}

/* The outputs of a lane, whose first needs what is held from `in` on. */
#if K_SIZE > 0
K_FN void d_sum(const mp_planes_args *a, const float *in, const float *at_taps, d_four *sums) {
    const d_four *taps = (const d_four *)at_taps;
    d_four w[TAP_PITCH / 4];
    K_UNROLL
    for (int32_t k = 0; k < TAP_PITCH / 4; k++) {
        w[k] = taps[k];
    }
    d_clear(sums);
    K_UNROLL
    for (int32_t y = 0; y < K_PLANES_SIDE(ROWS, K_SIZE, K_STRIDE); y++) {
        d_four x[FOURS];
        K_UNROLL
        for (int32_t f = 0; f < FOURS; f++) {
            x[f] = ((const d_four *)(in + y * a->pitch))[f];
        }
        K_UNROLL
        for (int32_t r = 0; r < ROWS; r++) {
            const int32_t tap = y - r * K_STRIDE;
            K_UNROLL
            for (int32_t k = 0; k < K_SIZE; k++) {
                K_UNROLL
                for (int32_t s = 0; s < STRIP; s++) {
                    if (tap >= 0 && tap < K_SIZE) {
                        const int32_t at = s * K_STRIDE + k, by = tap * K_SIZE + k;
                        sums[r].at[s] += x[at / 4].at[at % 4] * w[by / 4].at[by % 4];
                    }
                }
            }
        }
    }
}

#else
K_FN void d_sum(const mp_planes_args *a, const float *in, const float *taps, d_four *sums) {
    const int32_t down = a->stride_h * a->pitch, across = a->strips * a->stride_w;
    d_clear(sums);
    K_ONE_COPY
    for (int32_t y = 0; y < a->kernel_h; y++) {
        const float *x = in + y * a->dilation_h * a->pitch;
        K_ONE_COPY
        for (int32_t k = 0; k < a->kernel_w; k++) {
            const float w = *taps++;
            K_UNROLL
            for (int32_t r = 0; r < ROWS; r++) {
                K_UNROLL
                for (int32_t s = 0; s < STRIP; s++) {
                    sums[r].at[s] += x[r * down + s * across] * w;
                }
            }
            x += a->dilation_w;
        }
    }
}
#endif

/* What a row of the residual has for a lane, at once where all strips are aligned. `left`: elements
 * of the row from there on. */
K_FN void d_add(const mp_planes_args *a, const T *from, int32_t left, float *sums) {
    if (a->packed) {
        const d_pack pack = *(const d_pack *)from;
        float more[STRIP];
        K_UNROLL
        for (int32_t j = 0; j < STRIP / K_WORD; j++) {
            T_unpack(pack.word[j], more + j * K_WORD);
        }
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++) {
            sums[s] += more[s];
        }
        return;
    }
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++) {
        sums[s] += s * APART < left ? T_load(from[s * APART]) : 0;
    }
}

K_FN void d_put(const mp_planes_args *a, T *to, int32_t left, const float *made) {
    if (a->packed) {
        d_pack pack;
        K_UNROLL
        for (int32_t j = 0; j < STRIP / K_WORD; j++) {
            pack.word[j] = T_repack(made + j * K_WORD);
        }
        *(d_pack *)to = pack;
        return;
    }
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++) {
        if (s * APART < left) {
            to[s * APART] = T_store(made[s]);
        }
    }
}

/* The rows of a lane one after the other, to have one copy of what follows: each finds its sums in
 * the same place. */
K_FN void d_store(const mp_planes_args *a, int64_t first, int32_t rows, int32_t left, float bias,
                  d_four *sums) {
    const T *residual = (const T *)a->residual;
    K_ONE_COPY
    for (int32_t r = 0; r < rows; r++) {
        const int64_t at = first + (int64_t)r * a->out_w;
        K_UNROLL
        for (int32_t s = 0; s < STRIP; s++) {
            sums[0].at[s] += bias;
        }
        if (residual != 0) {
            d_add(a, residual + at, left, sums[0].at);
        }
        c_activate_four(a->activation, a->alpha, a->beta, sums[0].at);
        d_put(a, (T *)a->y + at, left, sums[0].at);
        K_UNROLL
        for (int32_t k = 0; k + 1 < ROWS; k++) {
            sums[k] = sums[k + 1];
        }
    }
}

/* Share `unit` of the tile. Lanes have strips side by side, then rows, then planes. */
K_FN void d_make(const mp_planes_args *a, const d_tile *t, const float *held, uint32_t unit) {
    const uint32_t line = k_divide(unit, a->by_strips);
    const uint32_t plane = k_divide(line, a->by_groups);
    const int32_t strip = (int32_t)(unit - line * (uint32_t)a->strips);
    const int32_t group = (int32_t)(line - plane * (uint32_t)a->groups);
    const int32_t row = t->row + group * ROWS, column = t->column + strip * ACROSS;
    const float *taps = held + a->planes * a->in_rows * a->pitch + (int32_t)plane * TAP_PITCH;
    const int32_t in = ((int32_t)plane * a->in_rows + group * ROWS * STRIDE_H) * a->pitch;
    d_four sums[ROWS];
    if ((int32_t)plane >= t->planes || row >= a->out_h || column >= a->out_w) {
        return;
    }
    d_sum(a, held + in + strip * ACROSS * STRIDE_W, taps, sums);
    const int64_t line_out = ((int64_t)t->plane + plane) * a->out_h + row;
    d_store(a, line_out * a->out_w + column, a->out_h - row < ROWS ? a->out_h - row : ROWS,
            a->out_w - column, taps[TAPS], sums);
}

K_BLOCK_KERNEL_WITHIN(REGISTERS, K_PLANES_LANES, mp_planes_args, args) {
    K_SHARED(float, shared);
    float *held = shared + K_PLANES_BEFORE;
    const uint32_t units = (uint32_t)(args.planes * args.groups * args.strips);
    float *taps = held + args.planes * args.in_rows * args.pitch;
    for (int64_t i = blockIdx.x; i < args.count; i += gridDim.x) {
        const d_tile t = d_find(&args, (uint32_t)i);
        const d_taps some = d_ask(&args, &t, threadIdx.x); /* on their way with the image */
        if (K_WORD > 1 && args.each == 2 * K_WORD) {
            d_fill(&args, &t, held, 2 * K_WORD);
        } else if (K_WORD > 1 && args.each == K_WORD) {
            d_fill(&args, &t, held, K_WORD);
        } else {
            d_fill(&args, &t, held, 1);
        }
        d_keep(&args, &t, threadIdx.x, &some, taps);
        K_ONE_COPY
        for (uint32_t k = threadIdx.x + TAPS_AT_ONCE * LANES; k < t.taps;
             k += TAPS_AT_ONCE * LANES) {
            const d_taps more = d_ask(&args, &t, k);
            d_keep(&args, &t, k, &more, taps);
        }
        __syncthreads();
        for (uint32_t unit = threadIdx.x; unit < units; unit += LANES) {
            d_make(&args, &t, held, unit);
        }
        __syncthreads(); /* before the next tile is held */
    }
}
