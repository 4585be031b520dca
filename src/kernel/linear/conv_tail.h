/* conv_tail.h - what follows a convolution, or a product.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_CONV_TAIL_H
#define MP_KERNEL_CONV_TAIL_H

#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"
#include "kernel/pointwise/functions.h"

/* By K_ACTIVATE_... */
K_FN TC c_activate(int32_t activation, float alpha, float beta, TC x) {
    switch (activation) {
    case K_ACTIVATE_RELU:
        return x < (TC)0 ? (TC)0 : x;
    case K_ACTIVATE_LEAKY_RELU:
        return x < (TC)0 ? (TC)alpha * x : x;
    case K_ACTIVATE_CLIP:
        return p_clamp(x, (TC)alpha, (TC)beta);
    case K_ACTIVATE_SIGMOID:
        return p_sigmoid(x);
    case K_ACTIVATE_TANH:
        return K_M(tanh)(x);
    case K_ACTIVATE_HARD_SIGMOID:
        return p_clamp((TC)alpha * x + (TC)beta, (TC)0, (TC)1);
    case K_ACTIVATE_HARD_SWISH:
        return x * p_clamp(x / (TC)6 + (TC)0.5, (TC)0, (TC)1);
    case K_ACTIVATE_SILU:
        return x * p_sigmoid(x);
    case K_ACTIVATE_GELU:
    case K_ACTIVATE_GELU_TANH:
        return p_gelu(x, activation == K_ACTIVATE_GELU_TANH);
    case K_ACTIVATE_SWISH:
        return x * p_sigmoid((TC)alpha * x);
    default:
        return x;
    }
}

/* Some of them, looked up once. */
#define C_SOME(kind)                                    \
    case kind:                                          \
        K_UNROLL                                        \
        for (int32_t j = 0; j < count; j++) {           \
            x[j] = c_activate(kind, alpha, beta, x[j]); \
        }                                               \
        break
K_FN void c_activate_some(int32_t activation, float alpha, float beta, TC *x, int32_t count) {
    switch (activation) {
        C_SOME(K_ACTIVATE_RELU);
        C_SOME(K_ACTIVATE_LEAKY_RELU);
        C_SOME(K_ACTIVATE_CLIP);
        C_SOME(K_ACTIVATE_SIGMOID);
        C_SOME(K_ACTIVATE_TANH);
        C_SOME(K_ACTIVATE_HARD_SIGMOID);
        C_SOME(K_ACTIVATE_HARD_SWISH);
        C_SOME(K_ACTIVATE_SILU);
        C_SOME(K_ACTIVATE_GELU);
        C_SOME(K_ACTIVATE_GELU_TANH);
        C_SOME(K_ACTIVATE_SWISH);
    default:
        break;
    }
}
#undef C_SOME

/* All sums of a lane, a multiple of eight: some at a time, which come to the front in turn, to have
 * one copy of what is looked up. */
K_FN void c_activate_turning(int32_t activation, float alpha, float beta, float *sums,
                             int32_t count) {
    enum { SOME = 8 };
    if (activation == K_ACTIVATE_NONE) {
        return;
    }
    if (activation == K_ACTIVATE_RELU) {
        K_UNROLL
        for (int32_t k = 0; k < count; k++) {
            sums[k] = sums[k] < 0 ? 0 : sums[k];
        }
        return;
    }
    K_ONE_COPY
    for (int32_t turn = 0; turn < count / SOME; turn++) {
        TC made[SOME];
        K_UNROLL
        for (int32_t k = 0; k < SOME; k++) {
            made[k] = sums[k];
        }
        c_activate_some(activation, alpha, beta, made, SOME);
        K_UNROLL
        for (int32_t k = 0; k < count; k++) {
            sums[k] = k + SOME < count ? sums[k + SOME] : (float)made[k + SOME - count];
        }
    }
}

K_FN void c_activate_four(int32_t activation, float alpha, float beta, TC *x) {
    c_activate_some(activation, alpha, beta, x, 4);
}

#endif
