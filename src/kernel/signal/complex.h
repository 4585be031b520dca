/* complex.h - complex numbers of the type that T is computed in.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_COMPLEX_H
#define MP_KERNEL_COMPLEX_H

#include "kernel/core/prelude.h"

typedef struct K_ALIGN(2 * sizeof(TC)) s_complex {
    TC re, im;
} s_complex;

K_FN s_complex s_sum(s_complex a, s_complex b) {
    a.re += b.re;
    a.im += b.im;
    return a;
}

K_FN s_complex s_difference(s_complex a, s_complex b) {
    a.re -= b.re;
    a.im -= b.im;
    return a;
}

K_FN s_complex s_product(s_complex a, s_complex b) {
    s_complex out;
    out.re = a.re * b.re - a.im * b.im;
    out.im = a.re * b.im + a.im * b.re;
    return out;
}

K_FN s_complex s_mirrored(s_complex a) {
    a.im = -a.im;
    return a;
}

#endif
