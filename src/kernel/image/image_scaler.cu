/* image_scaler.cu - a scale for all elements and a bias for each channel. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel_args.h"
#include "kernel/core/index.h"

K_KERNEL(mp_image_scaler_args, args) {
    const T *x = (const T *)args.x; /* out may be x */
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[at[0]] = T_store(T_load(x[at[0]]) * (TC)args.scale + (TC)args.bias[at[1]]);
    }
}
