/* repeat.cu - rows of 16-byte units, each some times one after the other. A lane reads a unit once
 * and writes it several times: bound by what is written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_repeat_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_ONE_COPY
    K_GRID_LOOP(i, args.count) {
        const uint32_t group = k_divide((uint32_t)i, args.by_length);
        const uint32_t at = (uint32_t)i - group * (uint32_t)args.length;
        const uint32_t row = k_divide(group, args.by_groups);
        const uint32_t first = (group - row * (uint32_t)args.groups) * K_REPEAT_EACH;
        const T unit = x[row * args.step + at];
        T *to = out + ((int64_t)row * args.times + first) * args.length + at;
        K_UNROLL for (uint32_t k = 0; k < K_REPEAT_EACH; k++) {
            if (first + k < (uint32_t)args.times) {
                to[k * args.length] = unit;
            }
        }
    }
}
