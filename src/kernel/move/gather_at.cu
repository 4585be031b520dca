/* gather_at.cu - picks elements or slices by indices of one or several parts, which a broken model
 * may have out of range: they read the nearest element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed.h"

K_KERNEL(mp_gather_at_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.walk.count) {
        int valid = 0;
        out[i] = x[k_indexed_at(&args.walk, i, &valid)];
    }
}
