/* depthwise_tail.h - what follows a convolution of each channel by itself.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DEPTHWISE_TAIL_H
#define MP_KERNEL_DEPTHWISE_TAIL_H

#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"
#include "kernel/pointwise/functions.h"

K_FN TC d_activate(const mp_depthwise_args *a, TC x) {
    switch (a->activation) {
    case K_ACTIVATE_RELU:
        return x < (TC)0 ? (TC)0 : x;
    case K_ACTIVATE_LEAKY_RELU:
        return x < (TC)0 ? (TC)a->alpha * x : x;
    case K_ACTIVATE_CLIP:
        return p_clamp(x, (TC)a->alpha, (TC)a->beta);
    case K_ACTIVATE_SIGMOID:
        return p_sigmoid(x);
    case K_ACTIVATE_TANH:
        return K_M(tanh)(x);
    case K_ACTIVATE_HARD_SIGMOID:
        return p_clamp((TC)a->alpha * x + (TC)a->beta, (TC)0, (TC)1);
    case K_ACTIVATE_HARD_SWISH:
        return x * p_clamp(x / (TC)6 + (TC)0.5, (TC)0, (TC)1);
    case K_ACTIVATE_SILU:
        return x * p_sigmoid(x);
    case K_ACTIVATE_GELU:
    case K_ACTIVATE_GELU_TANH:
        return p_gelu(x, a->activation == K_ACTIVATE_GELU_TANH);
    default:
        return x;
    }
}

#endif
