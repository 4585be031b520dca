/* spectrum.h - reads and writes elements of a transform. An inverse transform is a forward one of
 * mirrored numbers: the sign of the imaginary part is changed on both sides.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SPECTRUM_H
#define MP_KERNEL_SPECTRUM_H

#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/signal/signal_args.h"

typedef struct K_ALIGN(2 * sizeof(T)) s_complex {
    T re, im;
} s_complex;

K_FN s_complex s_product(s_complex a, s_complex b) {
    s_complex out;
    out.re = a.re * b.re - a.im * b.im;
    out.im = a.re * b.im + a.im * b.re;
    return out;
}

/* Element t of the row of x that starts at `start`, as it lies there. */
K_FN s_complex s_load(const mp_spectrum_args *args, int64_t start, int64_t t) {
    const int64_t at = args->hermitian && t > args->n / 2 ? args->n - t : t;
    const T *x = (const T *)args->x + (start + at * args->from.step) * args->from.parts;
    s_complex value = {0, 0};
    if (t >= args->n || at >= args->have) {
        return value;
    }
    if (args->from.aligned) {
        return *(const s_complex *)x;
    }
    value.re = x[0];
    value.im = args->from.parts == 2 ? x[1] : (T)0;
    return value;
}

/* What element t is for the transform. Apart from s_load, so that loads need not wait for each
 * other. */
K_FN s_complex s_prepare(const mp_spectrum_args *args, int64_t t, s_complex value) {
    const int mirrored = args->hermitian && t > args->n / 2;
    value.im = mirrored != (args->conjugate_in != 0) ? -value.im : value.im;
    if (args->window != 0 && t < args->have) {
        value.re *= ((const T *)args->window)[t];
        value.im *= ((const T *)args->window)[t];
    }
    if (args->weight_in != 0 && t < args->n) {
        value = s_product(value, ((const s_complex *)args->weight_in)[t]);
    }
    return value;
}

/* Element k of the row of the result that starts at `start`. */
K_FN void s_write(const mp_spectrum_args *args, int64_t start, int64_t k, s_complex value) {
    T *out = (T *)args->out + (start + k * args->to.step) * args->to.parts;
    value.im = args->conjugate_out ? -value.im : value.im;
    if (args->weight_out != 0) {
        value = s_product(value, ((const s_complex *)args->weight_out)[k]);
    }
    value.re *= (T)args->scale;
    value.im *= (T)args->scale;
    if (args->real_length != 0 && (k == 0 || 2 * k == args->real_length)) {
        value.im = 0;
    }
    if (args->to.aligned) {
        *(s_complex *)out = value;
        return;
    }
    out[0] = value.re;
    if (args->to.parts == 2) {
        out[1] = value.im;
    }
}

#endif
