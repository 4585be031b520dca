/* moe_between.h - what is done between the products of an expert.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_BETWEEN_H
#define MP_KERNEL_MOE_BETWEEN_H

#include "kernel/core/prelude.h"
#include "kernel/pointwise/functions.h"
#include "kernel/quantize/moe_args.h"

/* To within some 2^-20 of itself for elements of 16 bits, which do not show more. */
K_FN float m_sigmoid(float x) {
    return sizeof(T) == 2 ? p_inverse(1 + p_power_of_two(x * -1.44269504f)) : 1 / (1 + expf(-x));
}

/* `kind`: one of K_MOE_... but K_MOE_SWIGLU. */
K_FN float m_active(int32_t kind, float x) {
    switch (kind) {
    case K_MOE_RELU:
        return x < 0 ? 0 : x;
    case K_MOE_GELU:
        /* x (1 + tanh(y)) / 2 = x sigmoid(2 y) */
        return x * m_sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
    case K_MOE_SILU:
        return x * m_sigmoid(x);
    default:
        return x;
    }
}

K_FN float m_swiglu(const k_moe_between *by, float g, float l) {
    g = g > by->limit ? by->limit : g;
    l = l > by->limit ? by->limit : l < -by->limit ? -by->limit : l;
    return g * m_sigmoid(by->alpha * g) * (l + by->beta);
}

/* Of a column, or of one that the second of two gates. */
K_FN float m_made(const k_moe_between *by, const float *of, int count) {
    if (count == 2 && by->kind == K_MOE_SWIGLU) {
        return m_swiglu(by, of[0], of[1]);
    }
    return m_active(by->kind, of[0]) * (count == 2 ? of[1] : 1);
}

#endif
