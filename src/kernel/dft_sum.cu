/* dft_sum.cu - Fourier transforms of any length, term by term: one lane an output. Parts of K_PART
 * terms are added in double precision, so that the error does not grow with the length.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/spectrum.h"

enum { K_PART = 128 };

K_FN s_complex sum_of(const mp_spectrum_args *args, int64_t start, int64_t k) {
    const int64_t terms = args->hermitian || args->have > args->n ? args->n : args->have;
    double re = 0, im = 0;
    int64_t at = 0; /* t * k modulo n */
    for (int64_t first = 0; first < terms; first += K_PART) {
        const int64_t end = first + K_PART < terms ? first + K_PART : terms;
        s_complex part = {0, 0};
        for (int64_t t = first; t < end; t++) {
            const s_complex term =
                s_product(s_read(args, start, t), ((const s_complex *)args->turns)[at]);
            part.re += term.re;
            part.im += term.im;
            at += k;
            at -= at >= args->n ? args->n : 0;
        }
        re += (double)part.re;
        im += (double)part.im;
    }
    const s_complex out = {(T)re, (T)im};
    return out;
}

K_KERNEL(mp_spectrum_args, args) {
    K_GRID_LOOP(i, args.rows * args.made) {
        /* Neighbouring lanes write neighbouring elements: rows vary first where those are dense. */
        const int by_row = args.to.step > 1;
        const int64_t k = by_row ? i / args.rows : i % args.made;
        const int64_t row = by_row ? i % args.rows : i / args.made;
        const s_complex value = sum_of(&args, s_row(&args, args.from, row), k);
        s_write(&args, s_row(&args, args.to, row), k, value);
    }
}
