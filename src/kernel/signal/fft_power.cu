/* fft_power.cu - Fourier transforms of rows whose length is a power of two, one instance a length.
 * A lane holds EACH elements of a row in registers: they are as many butterflies as that makes, of
 * up to EACH branches, between exchanges with the row's other lanes through shared memory. Before a
 * barrier a lane asks for the roots that it needs behind it.
 *
 * Stockham's form: before a step that is to make transforms of `done` elements R times as long,
 * column c of N / R has the elements c + j N / R. What it makes belongs at
 *
 *     R (c - c mod done) + c mod done + m done,    m = 0 .. R - 1
 *
 * The numbers before and in it are sums of powers of two that differ, so the place of an element is
 * the sum of those of its parts, too, with gaps: see place_of().
 *
 * Real numbers are taken two by two as complex ones, for which elements k and N - k of the spectrum
 * are needed together. In the step next to the spectrum a lane has columns c and N / R - c, which
 * have all of each other's, so that needs no exchange of its own. Column 0 belongs to itself, as
 * does N / R / 2; lane 0 has both.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/signal/butterfly.h"
#include "kernel/signal/signal_args.h"

enum {
    EACH_BITS = K_FFT_EACH_BITS,
    EACH = 1 << EACH_BITS,
    LENGTH = 1 << K_BITS,    /* N */
    LANES = LENGTH / EACH,   /* of a row */
    ROW = K_FFT_ROW(K_BITS), /* in shared memory */
    FIRST_BITS = K_FFT_FIRST_BITS(K_BITS, K_PAIRS),
    LAST_BITS = K_FFT_LAST_BITS(K_BITS, K_PAIRS),
    LAST_DONE = K_BITS - LAST_BITS, /* bits of what is done before the last step */
    MIDDLE_STEPS = (LAST_DONE - FIRST_BITS) / EACH_BITS,
    BLOCK_LANES = LANES > K_FFT_BLOCK_LANES ? LANES : K_FFT_BLOCK_LANES,
    REGISTERS = (4 * EACH + 32) * sizeof(TC) / sizeof(float) /* of a lane */
};

/* A lane does its part of each step. On the emulated device it may be the only one of its block,
 * and does the parts of all. */
#if K_HOST
#define EACH_LANE(l, mine, n) K_BLOCK_LOOP(l, n)
#else
#define EACH_LANE(l, mine, n) for (uint32_t l = (mine), end = 0; end == 0; end = 1)
#endif

/* Which lane this is. The compiler does not know that it was the same for the rows before, or all
 * that follows from it would be computed, and the roots would be read, before the first row is. */
K_FN uint32_t lane_anew(void) {
    uint32_t lane = threadIdx.x;
#if K_PTX
    asm volatile("" : "+r"(lane));
#endif
    return lane;
}

/* All lanes of a row: those of a warp need no barrier of the block. */
K_FN void meet(void) {
#if !K_HOST
    if (LANES <= 32) {
        __syncwarp();
        return;
    }
#endif
    __syncthreads();
}

/* ---- numbers of a tensor: complex ones, or pairs ---- */

typedef struct K_ALIGN(2 * sizeof(T)) number {
    T re, im;
} number;

K_FN s_complex loaded(const number *from, int32_t at) {
    const number n = from[at];
    s_complex out;
    out.re = T_load(n.re);
    out.im = T_load(n.im);
    return out;
}

K_FN void store(number *to, int32_t at, s_complex value) {
    number n;
    n.re = T_store(value.re);
    n.im = T_store(value.im);
    to[at] = n;
}

/* Which row a lane has a part of, and which part. */
typedef struct share {
    const number *from;
    number *to;
    int32_t have; /* elements of the row; 0 where there is no such row */
    int32_t row, lane;
    int32_t present;
} share;

K_FN share share_of(const mp_fft_power_args *args, int64_t first, uint32_t l) {
    share s;
    s.lane = (int32_t)(l % LANES);
    s.row = (int32_t)(l / LANES);
    s.present = first + s.row < args->rows;
    const uint32_t row = s.present ? (uint32_t)(first + s.row) : 0;
    const uint32_t major = k_divide(row, args->by_minor);
    const uint32_t minor = row - major * args->minor_rows;
    s.from = (const number *)args->x + major * args->from_major + minor * args->from_minor;
    s.to = (number *)args->out + major * args->to_major + minor * args->to_minor;
    s.have = s.present ? args->have : 0;
    return s;
}

/* Element base + rest. */
K_FN s_complex element(const share *s, int32_t base, int32_t rest) {
    const s_complex none = {0, 0};
    return base + rest < s->have ? loaded(s->from + base, rest) : none;
}

/* How far behind the first of a lane's elements of the row is the i-th, in a step of butterflies of
 * 1 << bits; the first has the lane's number. */
K_FN int32_t behind(int32_t i, int32_t bits) {
    return (i >> bits) * LANES + ((i & ((1 << bits) - 1)) << (K_BITS - bits));
}

/* ---- exchanges ---- */

/* Where element t of a row is: gaps keep lanes that are some elements apart out of each other's
 * way. */
K_FN int32_t place_of(int32_t t) {
    return t + t / K_FFT_GAP;
}

/* Column i of a lane in a step of `bits`; in one of pairs those of the second half mirror those of
 * the first. */
K_FN int32_t column_of(int32_t lane, int32_t i, int32_t bits, int pairs) {
    const int32_t half = EACH >> bits >> 1;
    if (!pairs || i < half) {
        return lane + i * LANES;
    }
    const int32_t column = lane + (i - half) * LANES;
    return column == 0 ? LENGTH >> bits >> 1 : (LENGTH >> bits) - column;
}

K_FN void give(s_complex *row, const s_complex *x, int32_t lane, int32_t bits, int32_t done_bits,
               int pairs) {
    const int32_t below = (1 << done_bits) - 1;
    K_UNROLL
    for (int32_t i = 0; i < EACH >> bits; i++) {
        const int32_t c = column_of(lane, i, bits, pairs);
        s_complex *to = row + place_of(((c & ~below) << bits) + (c & below));
        K_UNROLL
        for (int32_t m = 0; m < 1 << bits; m++) {
            to[place_of(m << done_bits)] = x[(i << bits) + s_place_of(m, bits)];
        }
    }
}

K_FN void take(const s_complex *row, s_complex *x, int32_t lane, int32_t bits, int pairs) {
    K_UNROLL
    for (int32_t i = 0; i < EACH >> bits; i++) {
        const s_complex *from = row + place_of(column_of(lane, i, bits, pairs));
        K_UNROLL
        for (int32_t j = 0; j < 1 << bits; j++) {
            x[(i << bits) + j] = from[place_of(j << (K_BITS - bits))];
        }
    }
}

/* ---- roots ---- */

/* Which of a butterfly's roots are read: 1, 2, 3, 4, 8 and 12. The others are products of two,
 * which take less time than what is read, and as good as nothing from the sums' exactness. */
K_FN int32_t is_read(int32_t j) {
    return j < 4 || j % 4 == 0;
}

/* From the table of a step, which has root (c mod done) * j at [j][c mod done]. */
K_FN void ask_roots(const void *table, s_complex *w, int32_t lane, int32_t bits, int32_t done_bits,
                    int pairs) {
    const s_complex *roots = (const s_complex *)table;
    K_UNROLL
    for (int32_t i = 0; i < EACH >> bits; i++) {
        const int32_t c = column_of(lane, i, bits, pairs) & ((1 << done_bits) - 1);
        K_UNROLL
        for (int32_t j = 1; j < 1 << bits; j++) {
            if (is_read(j)) {
                w[(i << bits) + j] = roots[(j << done_bits) + c];
            }
        }
    }
}

K_FN void turn(s_complex *x, const s_complex *w, int32_t bits) {
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        const int32_t j = i & ((1 << bits) - 1);
        if (j != 0) {
            x[i] = s_product(x[i], is_read(j) ? w[i] : s_product(w[i - j % 4], w[i - j + j % 4]));
        }
    }
}

K_FN void butterflies(s_complex *x, int32_t bits) {
    K_UNROLL
    for (int32_t i = 0; i < EACH; i += 1 << bits) {
        s_butterfly(x + i, bits);
    }
}

/* ---- spectra of pairs ---- */

enum {
    PAIR_BITS = K_PAIRS == K_FFT_PAIRS_OUT ? FIRST_BITS : LAST_BITS, /* of the step of pairs */
    SLOTS = 1 << PAIR_BITS,
    HALF = SLOTS / 2,
    COLUMNS = LENGTH >> PAIR_BITS,
    TWINS = EACH / 2 /* elements of a lane; as many mirror them */
};

/* The i-th twin has slot i mod SLOTS of one of the lane's columns, which is element k, and its
 * mirror has N - k. The part of k that hangs on the lane, and the rest. */
K_FN int32_t base_of(int32_t lane, int32_t i) {
    return lane == 0 && i >= HALF && i < SLOTS ? COLUMNS / 2 - HALF * COLUMNS : lane;
}

K_FN int32_t rest_of(int32_t i) {
    return i % SLOTS * COLUMNS + i / SLOTS * LANES;
}

/* Where the i-th twin is behind its butterfly. */
K_FN int32_t in_place(int32_t i) {
    return i - i % SLOTS + s_place_of(i % SLOTS, PAIR_BITS);
}

K_FN int32_t mirror_of(int32_t i) {
    return TWINS + (i ^ (SLOTS - 1));
}

/* Lane 0 has columns that mirror themselves: the first column's second half, from its middle on,
 * is where the mirror of its first half is; the other column's first half where the second half of
 * the first one was. Elements of butterflies are at s_place_of(). */
K_FN void to_twins(s_complex *x) {
    s_complex was[EACH];
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        was[i] = x[i];
    }
    K_UNROLL
    for (int32_t j = 0; j < HALF; j++) {
        const int32_t next = j == HALF - 1 ? HALF : HALF + j + 1;
        x[s_place_of(HALF + j, PAIR_BITS)] = was[TWINS + s_place_of(j, PAIR_BITS)];
        x[TWINS + s_place_of(j, PAIR_BITS)] = was[TWINS + s_place_of(HALF + j, PAIR_BITS)];
        x[TWINS + s_place_of(HALF + j, PAIR_BITS)] = was[s_place_of(next, PAIR_BITS)];
    }
}

/* The way back, of elements in their order. */
K_FN void from_twins(s_complex *x) {
    s_complex was[EACH];
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        was[i] = x[i];
    }
    K_UNROLL
    for (int32_t j = 0; j < HALF; j++) {
        const int32_t next = j == HALF - 1 ? HALF : HALF + j + 1;
        x[TWINS + j] = was[HALF + j];
        x[TWINS + HALF + j] = was[TWINS + j];
        x[next] = was[TWINS + HALF + j];
    }
}

K_FN void ask_turns(const mp_fft_power_args *args, int32_t lane, s_complex *roots) {
    K_UNROLL
    for (int32_t i = 0; K_PAIRS != K_FFT_PAIRS_NONE && i < TWINS; i++) {
        roots[i] = ((const s_complex *)args->turns + base_of(lane, i))[rest_of(i)];
    }
}

/* Of elements k and N - k of half the spectrum of numbers those of the spectrum of their pairs,
 * times 2 and mirrored: with the transforms E and O of the numbers at even and odd places, and w
 * the root of 2 N, the former is E + w O and the latter mirrored E - w O; that of pairs is E + i O.
 */
K_FN void join(s_complex *a, s_complex *b, s_complex root) {
    const s_complex even = {a->re + b->re, a->im - b->im}, odd = {a->re - b->re, a->im + b->im};
    const s_complex turned = s_product(odd, s_mirrored(root));
    a->re = even.re - turned.im;
    a->im = -(even.im + turned.re);
    b->re = even.re + turned.im;
    b->im = even.im - turned.re;
}

/* The way back, neither times 2 nor mirrored. */
K_FN void part(s_complex *a, s_complex *b, s_complex root) {
    const TC half = (TC)0.5;
    const s_complex even = {a->re + b->re, a->im - b->im}, odd = {a->im + b->im, b->re - a->re};
    const s_complex halved = {root.re * half, root.im * half};
    const s_complex turned = s_product(odd, halved);
    a->re = even.re * half + turned.re;
    a->im = even.im * half + turned.im;
    b->re = even.re * half - turned.re;
    b->im = turned.im - even.im * half;
}

/* ---- what is read ---- */

K_FN void read_spectrum(const mp_fft_power_args *args, const share *s, s_complex *x) {
    s_complex roots[TWINS];
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        const int32_t base = base_of(s->lane, i), rest = rest_of(i);
        x[i] = element(s, base, rest);
        x[mirror_of(i)] = element(s, -base, LENGTH - rest);
    }
    ask_turns(args, s->lane, roots);
    const s_complex first = x[0], last = x[mirror_of(0)];
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        join(&x[i], &x[mirror_of(i)], roots[i]);
    }
    if (s->lane == 0) {
        const s_complex middle = element(s, 0, LENGTH / 2);
        x[0].re = first.re + last.re; /* the imaginary parts of the ends do not count */
        x[0].im = last.re - first.re;
        x[mirror_of(0)] = s_sum(middle, middle);
        from_twins(x);
    }
}

K_FN void read_row(const mp_fft_power_args *args, const share *s, s_complex *x) {
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        x[i] = element(s, s->lane, behind(i, FIRST_BITS));
    }
    if (args->window != 0) { /* of real numbers */
        K_UNROLL
        for (int32_t i = 0; i < EACH; i++) {
            const s_complex taps =
                loaded((const number *)args->window + s->lane, behind(i, FIRST_BITS));
            x[i].re *= taps.re;
            x[i].im *= taps.im;
        }
    }
    if (args->inverse) {
        K_UNROLL
        for (int32_t i = 0; i < EACH; i++) {
            x[i] = s_mirrored(x[i]);
        }
    }
}

/* ---- what is written ---- */

/* Element k of a spectrum of real numbers, of which the whole one has the mirrored one, too. */
K_FN void write_half(const mp_fft_power_args *args, const share *s, int32_t base, int32_t rest,
                     s_complex value) {
    store(s->to + base, rest, value);
    if (args->whole && (base + rest) % LENGTH != 0) {
        store(s->to - base, 2 * LENGTH - rest, s_mirrored(value));
    }
}

K_FN void write_spectrum(const mp_fft_power_args *args, const share *s, s_complex *x,
                         const s_complex *roots) {
    if (s->lane == 0) {
        to_twins(x);
    }
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        const int32_t base = base_of(s->lane, i), rest = rest_of(i);
        s_complex a = x[in_place(i)], b = x[in_place(mirror_of(i))];
        if (i == 0 && base == 0) { /* the ends, which are real, and the middle */
            const TC re = a.re, im = a.im;
            write_half(args, s, 0, LENGTH / 2, s_mirrored(b));
            a.re = re + im;
            b.re = re - im;
            a.im = b.im = 0;
        } else {
            part(&a, &b, roots[i]);
        }
        write_half(args, s, base, rest, a);
        write_half(args, s, -base, LENGTH - rest, b);
    }
}

K_FN void write_row(const mp_fft_power_args *args, const share *s, s_complex *x) {
    if (args->inverse) {
        const TC scale = (TC)args->scale;
        K_UNROLL
        for (int32_t i = 0; i < EACH; i++) {
            x[i].re *= scale;
            x[i].im *= -scale;
        }
    }
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        const int32_t m = i & ((1 << LAST_BITS) - 1);
        store(s->to + s->lane, behind(i, LAST_BITS), x[i - m + s_place_of(m, LAST_BITS)]);
    }
}

/* ---- the steps ---- */

/* What a lane asks for before a barrier, for what it does behind it. */
typedef struct factors {
    s_complex roots[MIDDLE_STEPS + 1][EACH], turns[TWINS];
} factors;

K_FN void ask(const mp_fft_power_args *args, int32_t lane, factors *f) {
    K_UNROLL
    for (int32_t step = 0; step < MIDDLE_STEPS; step++) {
        ask_roots(args->roots[step], f->roots[step], lane, EACH_BITS, FIRST_BITS + step * EACH_BITS,
                  0);
    }
    ask_roots(args->roots[MIDDLE_STEPS], f->roots[MIDDLE_STEPS], lane, LAST_BITS, LAST_DONE,
              K_PAIRS == K_FFT_PAIRS_IN);
}

/* Transforms of 1 << FIRST_BITS elements. */
K_FN void first_step(const mp_fft_power_args *args, const share *s, s_complex *points, factors *f) {
    s_complex x[EACH];
    if (K_PAIRS == K_FFT_PAIRS_OUT) {
        read_spectrum(args, s, x);
    } else {
        read_row(args, s, x);
    }
    if (!K_HOST) {
        ask(args, s->lane, f);
    }
    butterflies(x, FIRST_BITS);
    give(points + s->row * ROW, x, s->lane, FIRST_BITS, 0, K_PAIRS == K_FFT_PAIRS_OUT);
}

/* Makes transforms EACH times as long. */
K_FN void middle_step(const share *s, int32_t step, const s_complex *from, s_complex *to,
                      const factors *f) {
    s_complex x[EACH];
    take(from + s->row * ROW, x, s->lane, EACH_BITS, 0);
    turn(x, f->roots[step], EACH_BITS);
    butterflies(x, EACH_BITS);
    give(to + s->row * ROW, x, s->lane, EACH_BITS, FIRST_BITS + step * EACH_BITS, 0);
}

/* Makes those of N elements, or of 2 N numbers. */
K_FN void last_step(const mp_fft_power_args *args, const share *s, const s_complex *from,
                    const factors *f) {
    s_complex x[EACH];
    take(from + s->row * ROW, x, s->lane, LAST_BITS, K_PAIRS == K_FFT_PAIRS_IN);
    turn(x, f->roots[MIDDLE_STEPS], LAST_BITS);
    butterflies(x, LAST_BITS);
    if (!s->present) {
        return;
    }
    if (K_PAIRS == K_FFT_PAIRS_IN) {
        write_spectrum(args, s, x, f->turns);
    } else {
        write_row(args, s, x);
    }
}

/* Exchanges take turns with two buffers, so that one barrier is enough for each. */
K_BLOCK_KERNEL_WITHIN(REGISTERS, BLOCK_LANES, mp_fft_power_args, args) {
    K_SHARED(s_complex, points);
    const int64_t group = (int64_t)1 << args.group_bits;
    s_complex *const buffers[2] = {points, points + group * ROW};
    for (int64_t first = blockIdx.x * group; first < args.rows; first += gridDim.x * group) {
        const uint32_t mine = lane_anew();
        factors f;
        EACH_LANE(l, mine, group * LANES) {
            const share s = share_of(&args, first, (uint32_t)l);
            first_step(&args, &s, buffers[0], &f);
        }
        K_UNROLL
        for (int32_t step = 0; step < MIDDLE_STEPS; step++) {
            meet();
            EACH_LANE(l, mine, group * LANES) {
                const share s = share_of(&args, first, (uint32_t)l);
                if (K_HOST) {
                    ask(&args, s.lane, &f);
                }
                middle_step(&s, step, buffers[step % 2], buffers[1 - step % 2], &f);
            }
        }
        if (!K_HOST && K_PAIRS == K_FFT_PAIRS_IN) {
            ask_turns(&args, (int32_t)(mine % LANES), f.turns);
        }
        meet();
        EACH_LANE(l, mine, group * LANES) {
            const share s = share_of(&args, first, (uint32_t)l);
            if (K_HOST) {
                ask(&args, s.lane, &f);
                ask_turns(&args, s.lane, f.turns);
            }
            last_step(&args, &s, buffers[MIDDLE_STEPS % 2], &f);
        }
        meet(); /* all is read before the next rows are written */
    }
}
