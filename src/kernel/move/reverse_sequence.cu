/* reverse_sequence.cu - reverses the first steps of each sequence of a batch. A length out of
 * range is drawn to the nearest.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_reverse_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        const int64_t asked = args.lengths[at[0]];
        const int64_t length = asked < args.time ? asked : args.time;
        const int64_t step = at[1];
        out[i] = x[step < length ? i + (length - 1 - 2 * step) * args.stride : i];
    }
}
