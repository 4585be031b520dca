/* tensor_scatter.cu - writes new elements into a cache, for each sequence of a batch from a place
 * of its own on. What would lie outside is left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/indexed_args.h"

K_KERNEL(mp_tensor_scatter_args, args) {
    const T *__restrict__ update = (const T *)args.update;
    const int64_t *__restrict__ write = (const int64_t *)args.write;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[3];
        k_offsets(&args.layout, i, 3, at);
        int64_t first = write != 0 ? write[at[1]] : 0;
        if (args.is_circular) {
            first %= args.length;
            first = first < 0 ? first + args.length : first;
        } else if (first < 0 || first >= args.length) {
            continue;
        }
        int64_t to = first + at[2]; /* both below the length: no overflow */
        if (to >= args.length) {
            if (!args.is_circular) {
                continue;
            }
            to -= args.length;
        }
        out[at[0] + (to - at[2]) * args.step] = update[i];
    }
}
