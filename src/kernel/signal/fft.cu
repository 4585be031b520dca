/* fft.cu - Fourier transforms in shared memory, of lengths whose odd factors are small: Stockham's
 * form, which needs no reordering. Odd factors come first and powers of two last, four branches at
 * a time, so that the ends of the half spectrum of real numbers are exactly real. A block takes
 * 2^group_bits rows together; element t of its row r is at t * group + r, so that the rows are no
 * more than an outer stride of every stage.
 *
 * A row too long for a block takes several launches, which are stages of the same form on the whole
 * row: the rows of a launch are the strands t * strands + part of the tensor's rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/spectrum.h"

enum { K_AHEAD = 4 };

/* One of several stages: its stride is odd << bits, i the number of the butterfly. */
K_FN void four(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t bits,
               int32_t i) {
    const s_complex *roots = (const s_complex *)args->roots;
    const int32_t odd = args->length >> args->n_bits;
    const int32_t quarter = args->length << args->group_bits >> 2;
    const int32_t stride = odd << bits;
    const int32_t p = (int32_t)k_divide((uint32_t)(i >> bits), args->by_odd);
    const int32_t q = i - p * stride;
    const int32_t root = p * (odd << (bits - args->group_bits));
    const s_complex a = x[i], b = x[i + quarter], c = x[i + 2 * quarter], d = x[i + 3 * quarter];
    const s_complex ac = {a.re + c.re, a.im + c.im}, a_c = {a.re - c.re, a.im - c.im};
    const s_complex bd = {b.re + d.re, b.im + d.im}, b_d = {b.re - d.re, b.im - d.im};
    const s_complex first = {ac.re + bd.re, ac.im + bd.im};
    const s_complex second = {a_c.re + b_d.im, a_c.im - b_d.re};
    const s_complex third = {ac.re - bd.re, ac.im - bd.im};
    const s_complex fourth = {a_c.re - b_d.im, a_c.im + b_d.re};
    y += 4 * i - 3 * q;
    y[0] = first;
    y[stride] = s_product(second, roots[root]);
    y[2 * stride] = s_product(third, roots[2 * root]);
    y[3 * stride] = s_product(fourth, roots[3 * root]);
}

/* The last stage of an odd number of bits, whose factors are all 1. */
K_FN void two(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t i) {
    const int32_t half = args->length << args->group_bits >> 1;
    const s_complex a = x[i], b = x[i + half];
    y[i].re = a.re + b.re;
    y[i].im = a.im + b.im;
    y[i + half].re = a.re - b.re;
    y[i + half].im = a.im - b.im;
}

/* Branch k of butterfly i in a stage of `factor` branches; `done` is the product of those before.
 */
K_FN void branch(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t factor,
                 int32_t done, int32_t k, int32_t i) {
    const s_complex *roots = (const s_complex *)args->roots;
    const int32_t apart = args->length / factor << args->group_bits;
    const int32_t step = args->length / factor * k;
    const int32_t p = (int32_t)((uint32_t)(i >> args->group_bits) / (uint32_t)done);
    const int32_t stride = done << args->group_bits;
    s_complex sum = x[i];
    int32_t root = 0;
    for (int32_t j = 1; j < factor; j++) {
        root += step;
        root -= root >= args->length ? args->length : 0;
        const s_complex term = s_product(x[i + j * apart], roots[root]);
        sum.re += term.re;
        sum.im += term.im;
    }
    y[i + stride * (p * (factor - 1) + k)] = s_product(sum, roots[done * p * k]);
}

K_FN void odd_stage(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t factor,
                    int32_t done) {
    const int32_t butterflies = args->length / factor << args->group_bits;
    for (int32_t k = 0; k < factor; k++) {
        K_BLOCK_LOOP(i, butterflies) {
            branch(args, x, y, factor, done, k, (int32_t)i);
        }
    }
}

/* ---- rows ---- */

/* One row by itself needs no division, which takes longer than a stage. */
K_FN int64_t quotient(int64_t a, int64_t b) {
    return b == 1 ? a : a / b;
}

/* Finds row `row` of the launch, of which `strands` make one of the tensor. */
K_FN mp_fft_row row_at(const mp_spectrum_args *args, int64_t row) {
    const int64_t inner = args->by_strand ? args->strands : args->minor_rows;
    const int64_t outer = args->by_strand ? args->minor_rows : args->strands;
    const int64_t rest = quotient(row, inner);
    const int64_t low = row - rest * inner;
    const int64_t major = quotient(rest, outer);
    const int64_t high = rest - major * outer;
    const int64_t minor = args->by_strand ? high : low;
    mp_fft_row out;
    out.part = args->by_strand ? low : high;
    out.from = major * args->from.major + minor * args->from.minor;
    out.to = major * args->to.major + minor * args->to.minor;
    out.base = quotient(out.part, args->done) * args->done;
    return out;
}

/* Which element and which row: rows vary first where elements of one row are apart. */
typedef struct s_place {
    int32_t t, r;
} s_place;

K_FN s_place place_of(const mp_spectrum_args *args, int64_t step, int32_t e) {
    s_place place;
    if (step > 1) {
        place.t = e >> args->group_bits;
        place.r = e & ((1 << args->group_bits) - 1);
    } else {
        place.r = (int32_t)k_divide((uint32_t)e, args->by_length);
        place.t = e - place.r * args->length;
    }
    return place;
}

/* The factor with which element k of a row enters the passes that follow. */
K_FN s_complex twist(const mp_spectrum_args *args, const mp_fft_row *row, int64_t k) {
    const int64_t at = row->base * k;
    const int64_t low = at & (((int64_t)1 << args->fine_bits) - 1);
    return s_product(((const s_complex *)args->coarse)[at >> args->fine_bits],
                     ((const s_complex *)args->fine)[low]);
}

/* K_AHEAD elements of a lane are under way at a time. */
K_FN void read_rows(const mp_spectrum_args *args, const mp_fft_row *rows, int32_t present,
                    s_complex *x) {
    const int64_t step = args->from.step * args->strands;
    const int32_t count = args->length << args->group_bits;
    const int32_t lanes = (int32_t)blockDim.x;
    for (int32_t first = (int32_t)threadIdx.x; first < count; first += K_AHEAD * lanes) {
        s_complex value[K_AHEAD], other[K_AHEAD];
        s_place at[K_AHEAD];
        K_UNROLL
        for (int32_t j = 0; j < K_AHEAD; j++) {
            const s_complex none = {0, 0};
            value[j] = other[j] = none;
            at[j] = place_of(args, step, first + j * lanes);
            if (first + j * lanes < count && at[j].r < present) {
                const mp_fft_row *row = &rows[at[j].r];
                value[j] = s_load(args, row->from, at[j].t * args->strands + row->part);
                if (args->pairs == K_FFT_PAIRS_OUT) {
                    other[j] = s_load(args, row->from, args->length - at[j].t);
                }
            }
        }
        K_UNROLL
        for (int32_t j = 0; j < K_AHEAD; j++) {
            if (first + j * lanes < count) {
                const int64_t part = at[j].r < present ? rows[at[j].r].part : 0;
                x[(at[j].t << args->group_bits) + at[j].r] =
                    s_prepare(args, at[j].t * args->strands + part, value[j], other[j]);
            }
        }
    }
}

K_FN void write_element(const mp_spectrum_args *args, const mp_fft_row *row, int32_t t,
                        s_complex value) {
    const int64_t k = t * args->done + row->base * (args->length - 1) + row->part;
    if (k < args->made) {
        s_write(args, row->to, k,
                args->coarse != 0 ? s_product(value, twist(args, row, t)) : value);
    }
}

K_FN void write_rows(const mp_spectrum_args *args, const mp_fft_row *rows, int32_t present,
                     const s_complex *x) {
    const int64_t step = args->to.step * args->done;
    K_BLOCK_LOOP(e, args->length << args->group_bits) {
        const s_place at = place_of(args, step, (int32_t)e);
        const mp_fft_row *row = &rows[at.r];
        const s_complex value = x[(at.t << args->group_bits) + at.r];
        if (at.r >= present) {
            continue;
        }
        if (args->pairs == K_FFT_PAIRS_IN) {
            const int32_t other = at.t == 0 ? 0 : args->length - at.t;
            s_write_half(args, row->to, at.t, value, x[(other << args->group_bits) + at.r]);
        } else if (args->pairs == K_FFT_PAIRS_OUT) {
            s_write_pair(args, row->to, at.t, value);
        } else {
            write_element(args, row, at.t, value);
        }
    }
}

/* Gives x or y: where the result is. Ends with a barrier. */
K_FN s_complex *transform(const mp_spectrum_args *args, s_complex *x, s_complex *y) {
    const int32_t count = args->length << args->group_bits;
    int32_t done = 1;
    for (int32_t f = 0; args->odd_factors[f] != 0; f++) {
        odd_stage(args, x, y, args->odd_factors[f], done);
        done *= args->odd_factors[f];
        __syncthreads();
        s_complex *const written = y;
        y = x;
        x = written;
    }
    for (int32_t bits = 0; bits < args->n_bits; bits += 2) {
        if (args->n_bits - bits >= 2) {
            K_BLOCK_LOOP(i, count / 4) {
                four(args, x, y, bits + args->group_bits, (int32_t)i);
            }
        } else {
            K_BLOCK_LOOP(i, count / 2) {
                two(args, x, y, (int32_t)i);
            }
        }
        __syncthreads();
        s_complex *const written = y;
        y = x;
        x = written;
    }
    return x;
}

K_BLOCK_KERNEL_IN_64(K_FFT_LANES_MAX, mp_spectrum_args, args) {
    K_SHARED(mp_fft_row, rows);
    s_complex *points = (s_complex *)(rows + ((int64_t)1 << args.group_bits));
    const int64_t count = args.rows * args.strands;
    const int64_t groups = (count + ((int64_t)1 << args.group_bits) - 1) >> args.group_bits;
    for (int64_t g = blockIdx.x; g < groups; g += gridDim.x) {
        const int64_t first = g << args.group_bits;
        const int32_t group = 1 << args.group_bits;
        const int32_t present = count - first < group ? (int32_t)(count - first) : group;
        K_BLOCK_LOOP(r, present) {
            rows[r] = row_at(&args, first + r);
        }
        __syncthreads();
        read_rows(&args, rows, present, points);
        __syncthreads();
        const s_complex *made = transform(&args, points, points + (args.length << args.group_bits));
        write_rows(&args, rows, present, made);
        __syncthreads(); /* all are read before the next rows are written */
    }
}
