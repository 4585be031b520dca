/* softmax.h - what the kernels share that take a softmax of rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_SOFTMAX_H
#define MP_KERNEL_SOFTMAX_H

#include "kernel/core/prelude.h"

#if T_DOUBLE
typedef double S;
#define s_exp exp
#define s_log log
#else
typedef float S;
#define s_log logf
#if K_HOST
#define s_exp expf
#else
/* Of what is not above 0. The product's rounding costs 2^-24 of the exponent: a result of e^-10 is
 * right to 5e-7 of itself. */
K_FN float s_exp(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
    return power;
}
#endif
#endif

/* A NaN may get lost here: it comes back in the sum. */
K_FN S s_larger(S a, S b) {
#if K_HOST
    return a > b ? a : b;
#else
    return K_M(fmax)(a, b);
#endif
}

/* What is taken off before exp: where nothing or only -inf was seen, exp(-inf - 0) is 0. */
K_FN S s_base(S largest) {
    return largest == -(S)K_INF ? (S)0 : largest;
}

#endif
