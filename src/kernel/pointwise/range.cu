/* range.cu - out[i] = start + i * delta.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/pointwise/pointwise_args.h"

K_KERNEL(mp_range_args, args) {
    T *out = (T *)args.out;
#if T_FLOAT
    const TC start = (TC)args.start_float;
    const TC delta = (TC)args.delta_float;
    K_GRID_LOOP(i, args.count) {
        out[i] = T_store(start + (TC)i * delta);
    }
#else
    K_GRID_LOOP(i, args.count) {
        out[i] = T_store((TC)((uint64_t)args.start + (uint64_t)i * (uint64_t)args.delta));
    }
#endif
}
