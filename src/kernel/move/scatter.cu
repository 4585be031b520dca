/* scatter.cu - writes elements or slices to places that indices name; one out of range is left
 * out. Where two name one place, either may win.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed.h"

K_KERNEL(mp_scatter_args, args) {
    const T *__restrict__ updates = (const T *)args.updates;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.walk.count) {
        int valid = 0;
        const int64_t at = k_indexed_at(&args.walk, i, &valid);
        if (valid) {
            out[at] = updates[i];
        }
    }
}
