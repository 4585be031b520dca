/* depthwise_strip.cu - a convolution of long lines with channels first, each channel by itself, by
 * windows of some taps side by side, of stride 1, with what follows it.
 *
 * A block makes a tile of a line: it asks for all that this needs and for the taps at once, and
 * holds them in shared memory as they are computed with, zeros beyond the line. Then a lane makes a
 * strip of STRIP neighbours. What its window reads lies in registers, of which four taps later four
 * are replaced: two reads of four are STRIP times four products. Strips lie four floats apart, so
 * that lanes that read four floats meet other banks. Sums go back to shared memory, so that
 * neighbouring lanes write neighbours, wherever a line begins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/strip_args.h"

enum {
    STRIP = K_LINE_STRIP,
    PITCH = K_STRIP_PITCH, /* from a strip to the next */
    FOUR = 4,
    SLOTS = 8, /* fours of a strip that have names; five are needed at once */
    STEP = K_STRIP_LANES / STRIP * PITCH, /* from a lane's element to its next */
};

/* ASKED: loads of a line on their way to a lane; AT_ONCE: results. */
#if K_HOST
#define LANES blockDim.x
enum { ASKED = 1, AT_ONCE = 1 };
#else
enum { LANES = K_STRIP_LANES, ASKED = K_STRIP_ASKED, AT_ONCE = 4 };
#endif

typedef struct K_ALIGN(16) d_four {
    float at[FOUR];
} d_four;

/* A block's share. */
typedef struct d_tile {
    int32_t plane, channel, column;
    int32_t width; /* outputs */
} d_tile;

K_FN d_tile d_find(const mp_planes_args *a, uint32_t i) {
    d_tile t;
    const uint32_t plane = k_divide(i, a->by_tiles);
    const int32_t wide = a->strips * STRIP;
    t.plane = (int32_t)plane;
    t.channel = (int32_t)(plane - k_divide(plane, a->by_channels) * (uint32_t)a->channels);
    t.column = (int32_t)(i - plane * (uint32_t)a->tiles) * wide;
    t.width = a->out_w - t.column < wide ? a->out_w - t.column : wide;
    return t;
}

/* Where element `e` of the tile is held. */
K_FN int32_t d_at(int32_t e) {
    return e + e / STRIP * (PITCH - STRIP);
}

/* Taps are taken in fours; the first four begins so many before the first tap. */
K_FN int32_t d_before(const mp_planes_args *a) {
    return -a->taps & (FOUR - 1);
}

/* ---- what is held ---- */

/* Held in whole turns of all lanes: what is beyond the tile comes to lie where results will. */
K_FN void d_fill(const mp_planes_args *a, const d_tile *t, float *held, float *taps) {
    const int32_t left = t->column - a->pad_w, before = d_before(a), lane = (int32_t)threadIdx.x;
    const int32_t columns = a->strips * STRIP + a->taps - 1;
    const T *line = (const T *)a->x + (int64_t)t->plane * a->in_w + left;
    const T *w = (const T *)a->w + (int64_t)t->channel * a->taps;
    const T tap = lane < a->taps ? w[lane] : T_store((TC)0); /* on its way with the line */
    K_ONE_COPY
    for (int32_t p = lane; p < columns; p += ASKED * (int32_t)LANES) {
        const T *from = line + p;
        float *to = held + d_at(p + before);
        T value[ASKED];
        K_UNROLL
        for (int32_t k = 0; k < ASKED; k++) {
            value[k] = T_store((TC)0);
            if ((uint32_t)(left + p + k * (int32_t)LANES) < (uint32_t)a->in_w) {
                value[k] = from[k * (int32_t)LANES];
            }
        }
        K_UNROLL
        for (int32_t k = 0; k < ASKED; k++) {
            to[k * STEP] = T_load(value[k]);
        }
    }
    if (lane < a->taps) {
        taps[before + lane] = T_load(tap);
    }
    K_ONE_COPY
    for (int32_t k = lane + (int32_t)LANES; k < a->taps; k += (int32_t)LANES) {
        taps[before + k] = T_load(w[k]);
    }
}

/* ---- what is made of it ---- */

/* Adds what four taps give, of which `before` are none; x[group % SLOTS] is what the first of them
 * reads for the first four outputs. */
K_FN void d_group(const float *in, const float *taps, int32_t group, int32_t before, d_four *x,
                  float *sums) {
    const int32_t next = group + STRIP / FOUR;
    const d_four w = *(const d_four *)(taps + group * FOUR);
    x[next % SLOTS] = *(const d_four *)(in + d_at(next * FOUR));
    K_UNROLL
    for (int32_t k = 0; k < FOUR; k++) {
        if (k >= before) {
            K_UNROLL
            for (int32_t s = 0; s < STRIP; s++) {
                const int32_t e = s + k;
                sums[s] += x[(group + e / FOUR) % SLOTS].at[e % FOUR] * w.at[k];
            }
        }
    }
}

K_FN void d_sum(const mp_planes_args *a, const float *in, const float *taps, float *sums) {
    const int32_t before = d_before(a);
    int32_t left = (a->taps + before) / FOUR - 1;
    d_four x[SLOTS];
    K_UNROLL
    for (int32_t k = 0; k < STRIP / FOUR; k++) {
        x[k] = *(const d_four *)(in + k * FOUR);
    }
    d_group(in, taps, 0, before, x, sums);
    K_ONE_COPY
    for (;;) {
        K_UNROLL
        for (int32_t group = 1; group <= SLOTS; group++) {
            if (left == 0) {
                return;
            }
            left--;
            d_group(in, taps, group, 0, x, sums);
        }
        in += d_at(SLOTS * FOUR);
        taps += SLOTS * FOUR;
    }
}

K_FN void d_make(const mp_planes_args *a, const float *held, const float *taps, int32_t strip,
                 float *made) {
    float sums[STRIP];
    K_UNROLL
    for (int32_t s = 0; s < STRIP; s++) {
        sums[s] = 0;
    }
    d_sum(a, held + strip * PITCH, taps, sums);
    K_UNROLL
    for (int32_t k = 0; k < STRIP / FOUR; k++) {
        d_four four;
        K_UNROLL
        for (int32_t j = 0; j < FOUR; j++) {
            four.at[j] = sums[k * FOUR + j];
        }
        *(d_four *)(made + strip * PITCH + k * FOUR) = four;
    }
}

K_FN void d_finish(const mp_planes_args *a, const d_tile *t, const float *made) {
    const int64_t first = (int64_t)t->plane * a->out_w + t->column;
    const T *residual = a->residual ? (const T *)a->residual + first : 0;
    const float bias = a->bias ? T_load(((const T *)a->bias)[t->channel]) : 0;
    T *y = (T *)a->y + first;
    K_ONE_COPY
    for (int32_t p = (int32_t)threadIdx.x; p < t->width; p += AT_ONCE * (int32_t)LANES) {
        const float *from = made + d_at(p);
        TC sums[4] = {0};
        T more[AT_ONCE];
        K_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            more[k] = T_store((TC)0);
            if (residual && p + k * (int32_t)LANES < t->width) {
                more[k] = residual[p + k * (int32_t)LANES];
            }
        }
        K_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            sums[k] = from[k * STEP] + bias + T_load(more[k]);
        }
        c_activate_four(a->activation, a->alpha, a->beta, sums);
        K_UNROLL
        for (int32_t k = 0; k < AT_ONCE; k++) {
            if (p + k * (int32_t)LANES < t->width) {
                y[p + k * (int32_t)LANES] = T_store(sums[k]);
            }
        }
    }
}

/* Taps, what is held of the line, and what is made. */
K_BLOCK_KERNEL_WITHIN(64, K_STRIP_LANES, mp_planes_args, args) {
    K_SHARED(float, taps);
    float *held = taps + K_STRIP_TAPS(args.taps);
    float *made = held + K_STRIP_HELD(args.strips, args.taps);
    for (int64_t i = blockIdx.x; i < args.count; i += gridDim.x) {
        const d_tile t = d_find(&args, (uint32_t)i);
        d_fill(&args, &t, held, taps);
        __syncthreads();
        for (uint32_t strip = threadIdx.x; strip < (uint32_t)args.strips; strip += LANES) {
            d_make(&args, held, taps, (int32_t)strip, made);
        }
        __syncthreads();
        d_finish(&args, &t, made);
        __syncthreads(); /* before the next tile is held */
    }
}
