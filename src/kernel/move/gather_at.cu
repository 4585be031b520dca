/* gather_at.cu - picks elements or slices by indices of one or several parts, which a broken model
 * may have out of range: they read the nearest element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/vector.h"
#include "kernel/move/indexed.h"

/* A lane makes several neighbours, whose indices, and then elements, come at the same time. */
K_KERNEL(mp_gather_at_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    const int64_t count = args.walk.count, packs = (count + K_VECTOR - 1) / K_VECTOR;
    K_GRID_LOOP(i, packs) {
        const int64_t first = i * K_VECTOR;
        int64_t from[K_VECTOR];
        k_vector made;
        K_UNROLL for (int k = 0; k < K_VECTOR; k++) {
            int valid = 0;
            from[k] = k_indexed_at(&args.walk, first + k < count ? first + k : first, &valid);
        }
        K_UNROLL for (int k = 0; k < K_VECTOR; k++) {
            made.lane[k] = x[from[k]];
        }
        k_vector_write(out, first, count, made);
    }
}
