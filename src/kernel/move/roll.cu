/* roll.cu - a tensor whose elements move along up to two dimensions, those at the end to the front.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_roll_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[1 + K_ROLLED];
        k_offsets(&args.layout, i, 1 + K_ROLLED, at);
        int64_t from = at[0];
        for (int32_t k = 0; k < K_ROLLED; k++) {
            const int64_t index = at[1 + k] + args.start[k];
            from += (index < args.dim[k] ? index : index - args.dim[k]) * args.stride[k];
        }
        out[i] = x[from];
    }
}
