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
#include "kernel/core/word.h"
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
    ROWS = K_ACROSS ? 1 << K_FFT_ACROSS_BITS(K_BITS) : 1, /* side by side */
    BLOCK_LANES = K_ACROSS                    ? LANES * ROWS
                  : LANES > K_FFT_BLOCK_LANES ? LANES
                                              : K_FFT_BLOCK_LANES,
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
    if (LANES <= 32 && !K_ACROSS) {
        __syncwarp();
        return;
    }
#endif
    __syncthreads();
}

/* ---- numbers of a tensor: complex ones, or pairs, of TC or of halves ---- */

/* Which of them is an argument, so that an instance has both. It is asked once for all elements of
 * a lane: asked for each, they would come in turn. */
#if T_DOUBLE
#define IS_NARROW(type) 0
#else
#define IS_NARROW(type) ((type) != K_FFT_WIDE)
#endif

/* Number base + rest, or 0. */
K_FN s_complex loaded(const void *x, int32_t base, int32_t rest, int is_there, int narrow) {
    const s_complex none = {0, 0};
#if !T_DOUBLE
    if (narrow) {
        float parts[2];
        k_unpack_f16(is_there ? ((const uint32_t *)x + base)[rest] : 0, parts);
        const s_complex out = {parts[0], parts[1]};
        return out;
    }
#endif
    (void)narrow;
    return is_there ? ((const s_complex *)x + base)[rest] : none;
}

K_FN void store(void *out, int32_t base, int32_t rest, s_complex value, int narrow) {
#if !T_DOUBLE
    if (narrow) {
        const float parts[2] = {value.re, value.im};
        ((uint32_t *)out + base)[rest] = k_repack_f16(parts);
        return;
    }
#endif
    (void)narrow;
    ((s_complex *)out + base)[rest] = value;
}

/* Which row a lane has a part of, and which part. With K_ACROSS the elements of a row are a step
 * apart, and those of neighbouring rows side by side: so are the lanes that have them, and the rows
 * in shared memory. */
typedef struct share {
    int64_t from, to; /* bytes from x and out to the row; with K_ACROSS, to the lane's first */
    int32_t have;     /* elements of the row; 0 where there is no such row */
    int32_t row, lane;
    int32_t present;
} share;

/* How many bytes `numbers` are. */
K_FN int64_t bytes_of(int64_t numbers, int narrow) {
    return narrow ? numbers * (int64_t)sizeof(uint32_t) : numbers * (int64_t)sizeof(s_complex);
}

K_FN share share_of(const mp_fft_power_args *args, int64_t first, uint32_t l) {
    share s;
    s.lane = (int32_t)(K_ACROSS ? l / ROWS : l % LANES);
    s.row = (int32_t)(K_ACROSS ? l % ROWS : l / LANES);
    s.present = first + s.row < args->rows;
    const uint32_t row = s.present ? (uint32_t)(first + s.row) : 0;
    const uint32_t major = k_divide(row, args->by_minor);
    const uint32_t minor = row - major * args->minor_rows;
    s.from = major * args->from_major + minor * args->from_minor;
    s.to = major * args->to_major + minor * args->to_minor;
    if (K_ACROSS) {
        s.from += s.lane * args->from_step;
        s.to += s.lane * args->to_step;
    }
    s.from = bytes_of(s.from, IS_NARROW(args->narrow_in));
    s.to = bytes_of(s.to, IS_NARROW(args->narrow_out));
#if K_PTX && K_ACROSS
    /* Not to be taken apart: the compiler would find each element by products of its own. */
    asm("" : "+l"(s.from), "+l"(s.to));
#endif
    s.have = s.present ? args->have : 0;
    return s;
}

/* Element base + rest: what hangs on the lane (with K_ACROSS the lane itself), and the rest. */
K_FN s_complex element(const mp_fft_power_args *args, const share *s, int32_t base, int32_t rest,
                       int narrow) {
    const char *from = (const char *)args->x + s->from;
    const int is_there = rest < s->have - base;
    return K_ACROSS ? loaded(from, 0, rest * args->from_step, is_there, narrow)
                    : loaded(from, base, rest, is_there, narrow);
}

K_FN void put(const mp_fft_power_args *args, const share *s, int32_t base, int32_t rest,
              s_complex value, int narrow) {
    char *to = (char *)args->out + s->to;
    if (K_ACROSS) {
        store(to, 0, rest * args->to_step, value, narrow);
    } else {
        store(to, base, rest, value, narrow);
    }
}

/* How far behind the first of a lane's elements of the row is the i-th, in a step of butterflies of
 * 1 << bits; the first has the lane's number. */
K_FN int32_t behind(int32_t i, int32_t bits) {
    return (i >> bits) * LANES + ((i & ((1 << bits) - 1)) << (K_BITS - bits));
}

/* ---- exchanges ---- */

/* How far behind the first one of a row element t is: gaps keep lanes that are some elements apart
 * out of each other's way. */
K_FN int32_t place_of(int32_t t) {
    return (t + t / K_FFT_GAP) * ROWS;
}

/* How far behind the first row of the block is another. */
K_FN int32_t place_of_row(int32_t row) {
    return K_ACROSS ? row : row * ROW;
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

K_FN void load_spectrum(const mp_fft_power_args *args, const share *s, s_complex *x, int narrow) {
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        const int32_t base = base_of(s->lane, i), rest = rest_of(i);
        x[i] = element(args, s, base, rest, narrow);
        x[mirror_of(i)] = element(args, s, -base, LENGTH - rest, narrow);
    }
}

K_FN void read_spectrum(const mp_fft_power_args *args, const share *s, s_complex *x) {
    const int narrow = IS_NARROW(args->narrow_in);
    s_complex roots[TWINS];
    if (narrow) {
        load_spectrum(args, s, x, 1);
    } else {
        load_spectrum(args, s, x, 0);
    }
    ask_turns(args, s->lane, roots);
    const s_complex first = x[0], last = x[mirror_of(0)];
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        join(&x[i], &x[mirror_of(i)], roots[i]);
    }
    if (s->lane == 0) {
        const s_complex middle = element(args, s, 0, LENGTH / 2, narrow);
        x[0].re = first.re + last.re; /* the imaginary parts of the ends do not count */
        x[0].im = last.re - first.re;
        x[mirror_of(0)] = s_sum(middle, middle);
        from_twins(x);
    }
}

K_FN void load_row(const mp_fft_power_args *args, const share *s, s_complex *x, int narrow) {
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        x[i] = element(args, s, s->lane, behind(i, FIRST_BITS), narrow);
    }
    if (K_PAIRS == K_FFT_PAIRS_IN && args->window != 0) {
        K_UNROLL
        for (int32_t i = 0; i < EACH; i++) {
            const s_complex taps = loaded(args->window, s->lane, behind(i, FIRST_BITS), 1, narrow);
            x[i].re *= taps.re;
            x[i].im *= taps.im;
        }
    }
}

K_FN void read_row(const mp_fft_power_args *args, const share *s, s_complex *x) {
    if (IS_NARROW(args->narrow_in)) {
        load_row(args, s, x, 1);
    } else {
        load_row(args, s, x, 0);
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
                     s_complex value, int narrow) {
    put(args, s, base, rest, value, narrow);
    if (args->whole && (base + rest) % LENGTH != 0) {
        put(args, s, -base, 2 * LENGTH - rest, s_mirrored(value), narrow);
    }
}

/* The middle one is lane 0's. */
K_FN void store_spectrum(const mp_fft_power_args *args, const share *s, const s_complex *x,
                         s_complex middle, int narrow) {
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        const int32_t base = base_of(s->lane, i), rest = rest_of(i);
        write_half(args, s, base, rest, x[in_place(i)], narrow);
        write_half(args, s, -base, LENGTH - rest, x[in_place(mirror_of(i))], narrow);
    }
    if (s->lane == 0) {
        write_half(args, s, 0, LENGTH / 2, middle, narrow);
    }
}

K_FN void write_spectrum(const mp_fft_power_args *args, const share *s, s_complex *x,
                         const s_complex *roots) {
    if (s->lane == 0) {
        to_twins(x);
    }
    const s_complex first = x[in_place(0)], middle = s_mirrored(x[in_place(mirror_of(0))]);
    K_UNROLL
    for (int32_t i = 0; i < TWINS; i++) {
        part(&x[in_place(i)], &x[in_place(mirror_of(i))], roots[i]);
    }
    if (s->lane == 0) { /* the ends, which are real */
        const s_complex ends[2] = {{first.re + first.im, 0}, {first.re - first.im, 0}};
        x[in_place(0)] = ends[0];
        x[in_place(mirror_of(0))] = ends[1];
    }
    if (IS_NARROW(args->narrow_out)) {
        store_spectrum(args, s, x, middle, 1);
    } else {
        store_spectrum(args, s, x, middle, 0);
    }
}

K_FN void store_row(const mp_fft_power_args *args, const share *s, const s_complex *x, int narrow) {
    K_UNROLL
    for (int32_t i = 0; i < EACH; i++) {
        const int32_t m = i & ((1 << LAST_BITS) - 1);
        put(args, s, s->lane, behind(i, LAST_BITS), x[i - m + s_place_of(m, LAST_BITS)], narrow);
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
    if (IS_NARROW(args->narrow_out)) {
        store_row(args, s, x, 1);
    } else {
        store_row(args, s, x, 0);
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
    give(points + place_of_row(s->row), x, s->lane, FIRST_BITS, 0, K_PAIRS == K_FFT_PAIRS_OUT);
}

/* Makes transforms EACH times as long. */
K_FN void middle_step(const share *s, int32_t step, const s_complex *from, s_complex *to,
                      const factors *f) {
    s_complex x[EACH];
    take(from + place_of_row(s->row), x, s->lane, EACH_BITS, 0);
    turn(x, f->roots[step], EACH_BITS);
    butterflies(x, EACH_BITS);
    give(to + place_of_row(s->row), x, s->lane, EACH_BITS, FIRST_BITS + step * EACH_BITS, 0);
}

/* Makes those of N elements, or of 2 N numbers. */
K_FN void last_step(const mp_fft_power_args *args, const share *s, const s_complex *from,
                    const factors *f) {
    s_complex x[EACH];
    take(from + place_of_row(s->row), x, s->lane, LAST_BITS, K_PAIRS == K_FFT_PAIRS_IN);
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
    const int64_t group = K_ACROSS ? ROWS : (int64_t)1 << args.group_bits;
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
