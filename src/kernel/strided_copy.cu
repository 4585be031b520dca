/* strided_copy.cu - moves elements between two layouts: slices, expansions, concatenations, general
 * transpositions. Neighbouring lanes write neighbouring elements.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#include "kernel/movement_args.h"

K_KERNEL(mp_strided_copy_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[at[1]] = x[at[0]];
    }
}
