/* gated_add.cu - x + y * gate with a gate for each row. The product is rounded to the type of the
 * tensors before it is added, as the operators that this stands for do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/vector.h"
#include "kernel/rows/gate_args.h"

K_FN T ga_add(T x, T y, float gate) {
    return T_store(T_load(x) + T_load(T_store(T_load(y) * gate)));
}

K_KERNEL(mp_gated_add_args, args) {
    const T *x = (const T *)args.x, *y = (const T *)args.y, *gate = (const T *)args.gate;
    T *out = (T *)args.out;
    const int64_t pieces = args.packed ? args.columns / K_VECTOR : args.columns;
    K_GRID_LOOP(i, args.rows * pieces) {
        const float by = T_load(gate[i / pieces]);
        if (args.packed) {
            k_vector a = ((const k_vector *)x)[i];
            const k_vector b = ((const k_vector *)y)[i];
            for (int k = 0; k < K_VECTOR; k++) {
                a.lane[k] = ga_add(a.lane[k], b.lane[k], by);
            }
            ((k_vector *)out)[i] = a;
        } else {
            out[i] = ga_add(x[i], y[i], by);
        }
    }
}
