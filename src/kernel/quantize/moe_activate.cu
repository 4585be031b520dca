/* moe_activate.cu - what is between the products of an expert. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"

K_FN float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

K_FN float activate(int32_t kind, float x) {
    switch (kind) {
    case K_MOE_RELU:
        return x < 0 ? 0 : x;
    case K_MOE_GELU:
        return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case K_MOE_SILU:
        return x * sigmoid(x);
    default:
        return x;
    }
}

K_FN float swiglu(const mp_moe_activate_args *args, float g, float l) {
    g = g > args->limit ? args->limit : g;
    l = l > args->limit ? args->limit : l < -args->limit ? -args->limit : l;
    return g * sigmoid(args->alpha * g) * (l + args->beta);
}

K_KERNEL(mp_moe_activate_args, args) {
    const T *x = (const T *)args.x;
    const T *gate = (const T *)args.gate;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        if (args.kind != K_MOE_SWIGLU) {
            const float value = activate(args.kind, T_load(x[i]));
            out[i] = T_store(gate ? value * T_load(gate[i]) : value);
        } else if (args.halves == K_MOE_APART) {
            out[i] = T_store(swiglu(&args, T_load(x[i]), T_load(gate[i])));
        } else {
            const int64_t row = args.halves == K_MOE_PAIRS ? i : i / args.columns * args.columns;
            const int64_t g = row + i, step = args.halves == K_MOE_PAIRS ? 1 : args.columns;
            out[i] = T_store(swiglu(&args, T_load(x[g]), T_load(x[g + step])));
        }
    }
}
