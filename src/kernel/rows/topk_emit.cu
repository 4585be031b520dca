/* topk_emit.cu - values and indices of the pairs that were picked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

K_KERNEL(mp_topk_emit_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ values = (T *)args.values;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = i / args.k;
        const int64_t index = args.pairs[row * args.pairs_in_row + (i - row * args.k)].index;
        if (values) {
            values[i] = x[row * args.row + index];
        }
        if (args.indices) {
            args.indices[i] = index;
        }
    }
}
