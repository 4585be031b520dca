/* topk_emit.cu - values and indices of the entries that were picked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_entry.h"

K_KERNEL(mp_topk_emit_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ values = (T *)args.values;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = i / args.k;
        const int64_t index = k_entry_index(args.entries, args.words, i);
        if (values) {
            values[i] = x[row * args.row + index];
        }
        if (args.indices) {
            args.indices[i] = index;
        }
    }
}
