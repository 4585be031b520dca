/* pairs.cu - each element's key and place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"

K_KERNEL(mp_pairs_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    K_GRID_LOOP(i, args.count) {
        k_pair pair;
        pair.key = k_order_key((uint64_t)x[i], args.order);
        pair.index = i % args.columns;
        args.pairs[i] = pair;
    }
}
