/* lp_norm.h - what a row is divided by.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LP_NORM_H
#define MP_KERNEL_LP_NORM_H

#include "kernel/core/block.h"
#include "kernel/rows/row_args.h"

/* What an element adds to the sum of its row. */
K_FN K_SUM l_term(K_SUM value, int32_t p) {
    return p == 1 ? (value < 0 ? -value : value) : value * value;
}

#if K_HOST || T_DOUBLE
typedef struct l_norm {
    K_SUM norm;
    int stays;
} l_norm;

K_FN l_norm l_norm_of(K_SUM sum, const mp_lp_norm_args *args) {
    l_norm n;
    n.norm = args->p == 1 ? sum : sqrt(sum);
    n.norm = n.norm < (K_SUM)args->least ? (K_SUM)args->least : n.norm;
    n.stays = args->stays;
    return n;
}

K_FN K_SUM l_over(K_SUM value, l_norm n) {
    return n.norm == 0 && n.stays ? 0 : value / n.norm;
}
#else
/* A division of each element would be three times as many instructions. Norm and elements are
 * scaled alike, so that the norm has an inverse; those of a norm of 0 or infinity become 0. */
typedef struct l_norm {
    float scale, norm, inverse;
} l_norm;

K_FN l_norm l_norm_of(float sum, const mp_lp_norm_args *args) {
    const float length = args->p == 1 ? sum : sqrtf(sum);
    const float norm = length < args->least ? args->least : length;
    l_norm n;
    n.scale = norm == 0 && !args->stays    ? K_NAN
              : norm == 0 || norm == K_INF ? 0
              : norm < 0x1p-60f            ? 0x1p80f
              : norm > 0x1p60f             ? 0x1p-64f
                                           : 1;
    n.norm = n.scale == 0 ? 1 : norm * n.scale;
    n.inverse = 1 / n.norm;
    return n;
}

/* The quotient by way of the inverse, mended by what it leaves. */
K_FN float l_over(float value, l_norm n) {
    const float scaled = value * n.scale, quotient = scaled * n.inverse;
    return fmaf(fmaf(-quotient, n.norm, scaled), n.inverse, quotient);
}
#endif

#endif
