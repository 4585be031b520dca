/* spectrum.h - reads and writes elements of a transform. An inverse transform is a forward one of
 * mirrored numbers: the sign of the imaginary part is changed on both sides.
 *
 * Real numbers are taken two by two as complex ones where that can be: the spectrum of such pairs
 * has what is needed for half of that of the numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SPECTRUM_H
#define MP_KERNEL_SPECTRUM_H

#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/signal/complex.h"
#include "kernel/signal/signal_args.h"

/* ---- numbers of a tensor ---- */

/* As it lies there: of a narrower float the bits, so that loads need not wait for each other. */
K_FN T s_number(const void *x, int64_t i, int32_t narrow) {
#if !T_DOUBLE
    if (narrow != K_FFT_WIDE) {
        return k_float_of_bits(((const uint16_t *)x)[i]);
    }
#endif
    (void)narrow;
    return ((const T *)x)[i];
}

/* What it says. */
K_FN T s_widened(T number, int32_t narrow) {
#if !T_DOUBLE
    if (narrow != K_FFT_WIDE) {
        const k_f16 half = {(uint16_t)k_bits_of_float(number)};
        const k_bf16 other = {half.bits};
        return narrow == K_FFT_F16 ? k_load_f16(half) : k_load_bf16(other);
    }
#endif
    (void)narrow;
    return number;
}

K_FN void s_put(void *out, int64_t i, int32_t narrow, T value) {
#if !T_DOUBLE
    if (narrow != K_FFT_WIDE) {
        ((uint16_t *)out)[i] =
            narrow == K_FFT_F16 ? k_store_f16(value).bits : k_store_bf16(value).bits;
        return;
    }
#endif
    (void)narrow;
    ((T *)out)[i] = value;
}

/* Numbers `step` apart as a complex one; those from the `left`-th on are 0. */
K_FN s_complex s_pair(const mp_spectrum_args *args, int64_t at, int64_t step, int64_t left) {
    s_complex value = {0, 0};
    if (args->from.aligned && left >= 2) {
        return *(const s_complex *)((const T *)args->x + at);
    }
    value.re = left >= 1 ? s_number(args->x, at, args->narrow_in) : (T)0;
    value.im = left >= 2 ? s_number(args->x, at + step, args->narrow_in) : (T)0;
    return value;
}

K_FN void s_put_pair(const mp_spectrum_args *args, int64_t at, int64_t step, s_complex value) {
    if (args->to.aligned) {
        *(s_complex *)((T *)args->out + at) = value;
        return;
    }
    s_put(args->out, at, args->narrow_out, value.re);
    s_put(args->out, at + step, args->narrow_out, value.im);
}

/* ---- what is read ---- */

/* Element t of the row of x that starts at `start`, as it lies there. */
K_FN s_complex s_load(const mp_spectrum_args *args, int64_t start, int64_t t) {
    const int64_t step = args->from.step;
    if (args->pairs == K_FFT_PAIRS_IN) {
        return s_pair(args, start + 2 * t * step, step, args->have - 2 * t);
    }
    const int64_t at = args->hermitian && t > args->n / 2 ? args->n - t : t;
    const int64_t there = t < args->n && at < args->have ? args->from.parts : 0;
    return s_pair(args, (start + at * step) * args->from.parts, 1, there);
}

/* The spectrum of pairs from elements k and n / 2 - k of that of their numbers, times 2: with the
 * transforms E and O of the numbers at even and odd places, and w the root of n, the former is
 * E + w O and the latter mirrored E - w O; that of pairs is E + i O. */
K_FN s_complex s_join(const mp_spectrum_args *args, int64_t k, s_complex a, s_complex b) {
    const s_complex turn = s_mirrored(((const s_complex *)args->turns)[k]);
    const s_complex even = {a.re + b.re, a.im - b.im}, odd = {a.re - b.re, a.im + b.im};
    const s_complex turned = s_product(odd, turn);
    s_complex out = {even.re - turned.im, even.im + turned.re};
    if (k == 0) { /* whose imaginary parts do not count */
        out.re = a.re + b.re;
        out.im = a.re - b.re;
    }
    return out;
}

K_FN T s_tap(const mp_spectrum_args *args, int64_t t) {
    const int32_t narrow = args->narrow_in;
    return t < args->have ? s_widened(s_number(args->window, t, narrow), narrow) : (T)0;
}

/* What element t is for the transform; `other` is element n / 2 - t where pairs are to be made.
 * Apart from s_load, so that loads need not wait for each other. */
K_FN s_complex s_prepare(const mp_spectrum_args *args, int64_t t, s_complex value,
                         s_complex other) {
    const int32_t narrow = args->narrow_in;
    value.re = s_widened(value.re, narrow);
    value.im = s_widened(value.im, narrow);
    if (args->pairs == K_FFT_PAIRS_OUT) {
        other.re = s_widened(other.re, narrow);
        other.im = s_widened(other.im, narrow);
        return s_mirrored(s_join(args, t, value, other));
    }
    const int mirrored = args->hermitian && t > args->n / 2;
    value.im = mirrored != (args->conjugate_in != 0) ? -value.im : value.im;
    if (args->window != 0) {
        const int64_t first = args->pairs ? 2 * t : t, second = args->pairs ? first + 1 : t;
        value.re *= s_tap(args, first);
        value.im *= s_tap(args, second);
    }
    if (args->weight_in != 0 && t < args->n) {
        value = s_product(value, ((const s_complex *)args->weight_in)[t]);
    }
    return value;
}

/* ---- what is written ---- */

/* Element k of the row of the result that starts at `start`. */
K_FN void s_write(const mp_spectrum_args *args, int64_t start, int64_t k, s_complex value) {
    const int64_t at = (start + k * args->to.step) * args->to.parts;
    value.im = args->conjugate_out ? -value.im : value.im;
    if (args->weight_out != 0) {
        value = s_product(value, ((const s_complex *)args->weight_out)[k]);
    }
    value.re *= (T)args->scale;
    value.im *= (T)args->scale;
    if (args->real_length != 0 && (k == 0 || 2 * k == args->real_length)) {
        value.im = 0;
    }
    if (args->to.parts == 2) {
        s_put_pair(args, at, 1, value);
    } else {
        s_put(args->out, at, args->narrow_out, value.re);
    }
}

/* Pair t of the numbers of the row of the result that starts at `start`. */
K_FN void s_write_pair(const mp_spectrum_args *args, int64_t start, int64_t t, s_complex value) {
    const s_complex scaled = {value.re * (T)args->scale, -value.im * (T)args->scale};
    s_put_pair(args, start + 2 * t * args->to.step, args->to.step, scaled);
}

/* What elements t and n / 2 - t of the spectrum of pairs say of element t of that of their numbers;
 * the middle one comes with the first, and where the whole spectrum is kept the mirrored one. */
K_FN void s_write_half(const mp_spectrum_args *args, int64_t start, int64_t t, s_complex a,
                       s_complex b) {
    if (t == 0) {
        const s_complex first = {a.re + a.im, 0}, middle = {a.re - a.im, 0};
        s_write(args, start, 0, first);
        s_write(args, start, args->n / 2, middle);
        return;
    }
    const s_complex turn = ((const s_complex *)args->turns)[t];
    const s_complex even = {a.re + b.re, a.im - b.im}, odd = {a.im + b.im, b.re - a.re};
    const s_complex turned = s_product(odd, turn);
    const s_complex out = {(even.re + turned.re) * (T)0.5, (even.im + turned.im) * (T)0.5};
    s_write(args, start, t, out);
    if (args->made == args->n) {
        s_write(args, start, args->n - t, s_mirrored(out));
    }
}

#endif
