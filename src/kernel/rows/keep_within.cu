/* keep_within.cu - x between two numbers that depend on whether anything of it is infinite.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/found.h"

K_KERNEL(mp_keep_within_args, args) {
    const T *x = (const T *)args.x;
    T *out = (T *)args.out;
    const float most = k_most(args.found, args.most);
    K_GRID_LOOP(i, args.count) {
        out[i] = T_store(k_within(T_load(x[i]), most));
    }
}
