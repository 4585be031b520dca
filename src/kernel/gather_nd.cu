/* gather_nd.cu - picks slices by indices of several dimensions; out-of-range parts are clamped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/movement_args.h"
#include "kernel/prelude.h"

K_KERNEL(mp_gather_nd_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    const int64_t *__restrict__ indices = (const int64_t *)args.indices;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.slices * args.slice) {
        const int64_t s = i / args.slice;
        int64_t at = s / args.slices_per_batch * args.batch_stride + (i - s * args.slice);
        for (int32_t d = 0; d < args.depth; d++) {
            int64_t index = indices[s * args.depth + d];
            index = index < 0 ? index + args.dim[d] : index;
            index = index < 0 ? 0 : index >= args.dim[d] ? args.dim[d] - 1 : index;
            at += index * args.stride[d];
        }
        out[i] = x[at];
    }
}
