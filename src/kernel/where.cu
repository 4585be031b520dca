/* where.cu - out[i] = condition[i] ? x[i] : y[i], each repeated as broadcasting asks. Elements are
 * only moved, so their size is all that matters. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/pointwise_args.h"

K_KERNEL(mp_where_args, args) {
    const k_bool *condition = (const k_bool *)args.condition;
    const T *x = (const T *)args.x; /* out may be x or y where that has its shape */
    const T *y = (const T *)args.y;
    T *out = (T *)args.out;
    if (args.broadcast) {
        K_GRID_LOOP(i, args.count) {
            int64_t at[3];
            k_offsets(&args.layout, i, 3, at);
            out[i] = k_load_bool(condition[at[0]]) ? x[at[1]] : y[at[2]];
        }
        return;
    }
    K_GRID_LOOP(i, args.count) {
        out[i] = k_load_bool(condition[i]) ? x[i] : y[i];
    }
}
