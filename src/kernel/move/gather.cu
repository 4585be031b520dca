/* gather.cu - picks slices along one axis. An index that is out of range, which only a broken model
 * has, reads the nearest slice: it must not read foreign memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/indexed_args.h"

K_KERNEL(mp_gather_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    const U *__restrict__ indices = (const U *)args.indices;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        int64_t index = indices[at[1]];
        index = index < 0 ? index + args.axis_dim : index;
        index = index < 0 ? 0 : index >= args.axis_dim ? args.axis_dim - 1 : index;
        out[i] = x[at[0] + index * args.inner];
    }
}
