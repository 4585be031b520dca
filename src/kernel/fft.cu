/* fft.cu - Fourier transforms of lengths that are a power of two, in shared memory: Stockham's
 * form, four branches at a time, which needs no reordering. A block takes 2^group_bits rows
 * together; element t of its row r is at t * group + r, so that the rows are no more than an outer
 * stride of every stage. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/spectrum.h"

/* One of several stages: `bits` is of the stride, i the number of the butterfly. */
K_FN void four(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t bits,
               int32_t i) {
    const s_complex *turns = (const s_complex *)args->turns;
    const int32_t quarter = 1 << (args->n_bits + args->group_bits - 2);
    const int32_t stride = 1 << bits;
    const int32_t q = i & (stride - 1);
    const int32_t turn = (i >> bits) << (bits - args->group_bits);
    const s_complex a = x[i], b = x[i + quarter], c = x[i + 2 * quarter], d = x[i + 3 * quarter];
    const s_complex ac = {a.re + c.re, a.im + c.im}, a_c = {a.re - c.re, a.im - c.im};
    const s_complex bd = {b.re + d.re, b.im + d.im}, b_d = {b.re - d.re, b.im - d.im};
    const s_complex first = {ac.re + bd.re, ac.im + bd.im};
    const s_complex second = {a_c.re + b_d.im, a_c.im - b_d.re};
    const s_complex third = {ac.re - bd.re, ac.im - bd.im};
    const s_complex fourth = {a_c.re - b_d.im, a_c.im + b_d.re};
    y += 4 * i - 3 * q;
    y[0] = first;
    y[stride] = s_product(second, turns[turn]);
    y[2 * stride] = s_product(third, turns[2 * turn]);
    y[3 * stride] = s_product(fourth, turns[3 * turn]);
}

/* The last stage of an odd number of bits, whose factors are all 1. */
K_FN void two(const mp_spectrum_args *args, const s_complex *x, s_complex *y, int32_t i) {
    const int32_t half = 1 << (args->n_bits + args->group_bits - 1);
    const s_complex a = x[i], b = x[i + half];
    y[i].re = a.re + b.re;
    y[i].im = a.im + b.im;
    y[i + half].re = a.re - b.re;
    y[i + half].im = a.im - b.im;
}

/* Which element and which row: rows vary first where elements of one row are apart. */
typedef struct s_place {
    int32_t t, r;
} s_place;

K_FN s_place place_of(const mp_spectrum_args *args, int64_t step, int32_t e) {
    s_place place;
    place.t = step > 1 ? e >> args->group_bits : e & ((1 << args->n_bits) - 1);
    place.r = step > 1 ? e & ((1 << args->group_bits) - 1) : e >> args->n_bits;
    return place;
}

K_BLOCK_KERNEL(mp_spectrum_args, args) {
    K_SHARED(s_complex, points);
    const int32_t count = 1 << (args.n_bits + args.group_bits);
    const int64_t groups = (args.rows + ((int64_t)1 << args.group_bits) - 1) >> args.group_bits;
    for (int64_t g = blockIdx.x; g < groups; g += gridDim.x) {
        const int64_t first = g << args.group_bits;
        s_complex *x = points, *y = points + count;
        K_BLOCK_LOOP(e, count) {
            const s_place at = place_of(&args, args.from.step, (int32_t)e);
            const s_complex none = {0, 0};
            const int64_t row = first + at.r;
            x[(at.t << args.group_bits) + at.r] =
                row < args.rows ? s_read(&args, s_row(&args, args.from, row), at.t) : none;
        }
        __syncthreads();
        for (int32_t done = 0; done < args.n_bits; done += 2) {
            if (args.n_bits - done >= 2) {
                K_BLOCK_LOOP(i, count / 4) {
                    four(&args, x, y, done + args.group_bits, (int32_t)i);
                }
            } else {
                K_BLOCK_LOOP(i, count / 2) {
                    two(&args, x, y, (int32_t)i);
                }
            }
            __syncthreads();
            s_complex *const written = y;
            y = x;
            x = written;
        }
        K_BLOCK_LOOP(e, count) {
            const s_place at = place_of(&args, args.to.step, (int32_t)e);
            const int64_t row = first + at.r;
            if (row < args.rows && at.t < args.made) {
                s_write(&args, s_row(&args, args.to, row), at.t,
                        x[(at.t << args.group_bits) + at.r]);
            }
        }
        __syncthreads(); /* all are read before the next rows are written */
    }
}
