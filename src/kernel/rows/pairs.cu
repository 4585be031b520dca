/* pairs.cu - the entry of each element: its key and place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_entry.h"
#include "kernel/rows/sort_key.h"

K_KERNEL(mp_pairs_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    K_GRID_LOOP(i, args.count) {
        k_entry_put(args.entries, args.words, i, k_order_key((uint64_t)x[i], args.order),
                    i % args.columns);
    }
}
