/* unpool.cu - each largest element back to where it was found. Where windows overlap an index may
 * come twice, with the same element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/image/window_args.h"

K_KERNEL(mp_unpool_args, args) {
    const T *x = (const T *)args.x;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        const int64_t at = args.indices[i];
        if (at >= 0 && at < args.out_count) { /* others come of no pool */
            out[at] = x[i];
        }
    }
}
