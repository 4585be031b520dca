/* moe_activate.cu - what is between the products of an expert. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe_between.h"

K_KERNEL(mp_moe_activate_args, args) {
    const T *x = (const T *)args.x;
    const T *gate = (const T *)args.gate;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        if (args.between.kind != K_MOE_SWIGLU) {
            const float value = m_active(args.between.kind, T_load(x[i]));
            out[i] = T_store(gate ? value * T_load(gate[i]) : value);
        } else if (args.between.halves == K_MOE_APART) {
            out[i] = T_store(m_swiglu(&args.between, T_load(x[i]), T_load(gate[i])));
        } else {
            const int64_t row =
                args.between.halves == K_MOE_PAIRS ? i : i / args.columns * args.columns;
            const int64_t g = row + i, step = args.between.halves == K_MOE_PAIRS ? 1 : args.columns;
            out[i] = T_store(m_swiglu(&args.between, T_load(x[g]), T_load(x[g + step])));
        }
    }
}
