/* spectrum.h - reads and writes elements of a transform. An inverse transform is a forward one of
 * mirrored numbers: the sign of the imaginary part is changed on both sides.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SPECTRUM_H
#define MP_KERNEL_SPECTRUM_H

#include "kernel/prelude.h"
#include "kernel/spectrum_args.h"

typedef struct K_ALIGN(2 * sizeof(T)) s_complex {
    T re, im;
} s_complex;

K_FN s_complex s_product(s_complex a, s_complex b) {
    s_complex out;
    out.re = a.re * b.re - a.im * b.im;
    out.im = a.re * b.im + a.im * b.re;
    return out;
}

K_FN int64_t s_row(const mp_spectrum_args *args, mp_spectrum_side side, int64_t row) {
    const int64_t major = row / args->minor_rows;
    return major * side.major + (row - major * args->minor_rows) * side.minor;
}

/* Element t of the row that starts at `start`. */
K_FN s_complex s_read(const mp_spectrum_args *args, int64_t start, int64_t t) {
    const int mirrored = args->hermitian && t > args->n / 2;
    const int64_t at = mirrored ? args->n - t : t;
    s_complex value = {0, 0};
    if (at >= args->have) {
        return value;
    }
    const T *x = (const T *)args->x + (start + at * args->from.step) * args->from.parts;
    value.re = x[0];
    value.im = args->from.parts == 2 ? x[1] : (T)0;
    value.im = mirrored != (args->inverse != 0) ? -value.im : value.im;
    if (args->window != 0) {
        value.re *= ((const T *)args->window)[t];
        value.im *= ((const T *)args->window)[t];
    }
    return value;
}

K_FN void s_write(const mp_spectrum_args *args, int64_t start, int64_t k, s_complex value) {
    T *out = (T *)args->out + (start + k * args->to.step) * args->to.parts;
    const T scale = args->inverse ? (T)1 / (T)args->n : (T)1;
    out[0] = value.re * scale;
    if (args->to.parts == 2) {
        out[1] = args->inverse ? -value.im * scale : value.im;
    }
}

#endif
