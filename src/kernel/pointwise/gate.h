/* gate.h - an activation times another number.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GATE_H
#define MP_KERNEL_GATE_H

#include "kernel/core/prelude.h"
#include "kernel/pointwise/functions.h"
#include "kernel/pointwise/pointwise_args.h"

/* `by` is one of K_GATE_..., `alpha` that of K_GATE_SWISH. */
K_FN T g_gated(int32_t by, float alpha, T gate, T x) {
    const TC g = T_load(gate);
    const TC active =
        by == K_GATE_SWISH ? g * p_sigmoid((TC)alpha * g) : p_gelu(g, by == K_GATE_GELU_BY_TANH);
    return T_store(active * T_load(x));
}

#endif
