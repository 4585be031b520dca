/* resize_nearest.cu - each output is the input that the tables of its axes name. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/resize.h"

K_KERNEL(mp_resize_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t entry[K_AXES];
        int64_t offset = r_place(&args, i, entry);
        int32_t lowest = 0;
        for (int32_t a = 0; a < R_AXES(&args); a++) {
            const int32_t index = args.index[entry[a]];
            lowest = index < lowest ? index : lowest;
            offset += index * args.stride[2 * a + 1];
        }
        out[i] = lowest < 0 ? (T)args.outside : x[offset];
    }
}
