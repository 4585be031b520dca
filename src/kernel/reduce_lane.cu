/* reduce_lane.cu - one lane for each output: best where outputs are many and neighbours in memory,
 * or where little goes into each. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce.h"

K_KERNEL(mp_reduce_args, args) {
    T *out = (T *)args.out;
    K_GRID_LOOP(o, args.outputs) {
        const T *x = (const T *)args.x + r_kept(&args, o);
        K_SUM sum = r_identity();
        for (int64_t i = 0; i < args.reduced; i++) {
            sum = r_add(sum, r_load(x[r_dropped(&args, i)]));
        }
        out[o] = r_store(sum, args.reduced);
    }
}
