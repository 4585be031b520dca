/* butterfly.h - transforms of 2, 4, 8 or 16 complex numbers that a lane holds in registers. Those
 * of 8 and 16 are transforms of 4 and then of 2 or 4, which leave the elements in another order:
 * element m ends up at s_place_of(m).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BUTTERFLY_H
#define MP_KERNEL_BUTTERFLY_H

#include "kernel/signal/complex.h"

/* a, turned back by the angle that has this cosine and sine. */
K_FN s_complex s_turned(s_complex a, TC cosine, TC sine) {
    s_complex out;
    out.re = a.re * cosine + a.im * sine;
    out.im = a.im * cosine - a.re * sine;
    return out;
}

/* The same for a quarter of a turn. */
K_FN s_complex s_quarter(s_complex a) {
    s_complex out;
    out.re = a.im;
    out.im = -a.re;
    return out;
}

K_FN void s_two(s_complex *x) {
    const s_complex a = x[0], b = x[1];
    x[0] = s_sum(a, b);
    x[1] = s_difference(a, b);
}

/* Of numbers `step` apart. */
K_FN void s_four(s_complex *x, int32_t step) {
    const s_complex a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    const s_complex ac = s_sum(a, c), bd = s_sum(b, d);
    const s_complex a_c = s_difference(a, c), b_d = s_quarter(s_difference(b, d));
    x[0] = s_sum(ac, bd);
    x[step] = s_sum(a_c, b_d);
    x[2 * step] = s_difference(ac, bd);
    x[3 * step] = s_difference(a_c, b_d);
}

#define S_HALF ((TC)0.70710678118654752440) /* cosine and sine of an eighth of a turn */

K_FN void s_eight(s_complex *x) {
    s_four(x, 2);
    s_four(x + 1, 2);
    x[3] = s_turned(x[3], S_HALF, S_HALF);
    x[5] = s_quarter(x[5]);
    x[7] = s_turned(x[7], -S_HALF, S_HALF);
    K_UNROLL
    for (int32_t i = 0; i < 8; i += 2) {
        s_two(x + i);
    }
}

K_FN void s_sixteen(s_complex *x) {
    const TC cosine = (TC)0.92387953251128675613, sine = (TC)0.38268343236508977173;
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        s_four(x + i, 4);
    }
    x[5] = s_turned(x[5], cosine, sine);
    x[6] = s_turned(x[6], S_HALF, S_HALF);
    x[7] = s_turned(x[7], sine, cosine);
    x[9] = s_turned(x[9], S_HALF, S_HALF);
    x[10] = s_quarter(x[10]);
    x[11] = s_turned(x[11], -S_HALF, S_HALF);
    x[13] = s_turned(x[13], sine, cosine);
    x[14] = s_turned(x[14], -S_HALF, S_HALF);
    x[15] = s_turned(x[15], -cosine, -sine);
    K_UNROLL
    for (int32_t i = 0; i < 16; i += 4) {
        s_four(x + i, 1);
    }
}

/* Of 1 << bits numbers. */
K_FN void s_butterfly(s_complex *x, int32_t bits) {
    if (bits == 1) {
        s_two(x);
    } else if (bits == 2) {
        s_four(x, 1);
    } else if (bits == 3) {
        s_eight(x);
    } else {
        s_sixteen(x);
    }
}

K_FN int32_t s_place_of(int32_t m, int32_t bits) {
    return bits <= 2 ? m : (m % 4 << (bits - 2)) + m / 4;
}

#endif
