/* scaled_silu.cu - z * sigmoid(z) of z = scale * x. z and its sigmoid are rounded to the type of
 * the tensor, as the operators that this stands for do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/any_float.h"
#include "kernel/core/vector.h"
#include "kernel/rows/gate_args.h"

K_FN T ss_silu(T x, float scale) {
    const float z = T_load(T_store(scale * T_load(x)));
    return T_store(z * T_load(T_store(1.0f / (1.0f + expf(-z)))));
}

K_KERNEL(mp_scaled_silu_args, args) {
    const float scale = args.scale ? k_any_float(args.scale, 0, args.scale_type) : args.alpha;
    K_GRID_LOOP(i, args.packed ? args.count / K_VECTOR : args.count) {
        if (args.packed) {
            k_vector x = ((const k_vector *)args.x)[i];
            for (int k = 0; k < K_VECTOR; k++) {
                x.lane[k] = ss_silu(x.lane[k], scale);
            }
            ((k_vector *)args.out)[i] = x;
        } else {
            ((T *)args.out)[i] = ss_silu(((const T *)args.x)[i], scale);
        }
    }
}
