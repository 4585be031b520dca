/* interleave.cu - the channels of two groups in turns, channels being neighbours in memory.
 *
 *     groups: a0 a1 a2 .. and b0 b1 b2 ..    out: a0 b0 a1 b1 a2 b2 ..
 *
 * A lane reads K_EACH channels of each group at once and writes twice as many.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

typedef struct K_ALIGN(K_EACH * sizeof(T)) pack {
    T at[K_EACH];
} pack;

typedef struct K_ALIGN(2 * K_EACH * sizeof(T)) both {
    T at[2 * K_EACH];
} both;

K_KERNEL(mp_interleave_args, args) {
    K_GRID_LOOP(i, args.count) {
        int32_t k = 0;
        K_ONE_COPY
        for (int32_t n = 1; n < args.outs; n++) {
            k += (uint32_t)args.out[n].start <= (uint32_t)i;
        }
        const k_shuffle_out *out = &args.out[k];
        const uint32_t at = (uint32_t)i - (uint32_t)out->start;
        const uint32_t row = k_divide(at, out->divider);
        const uint32_t first =
            ((uint32_t)out->first + at - row * (uint32_t)out->width) * (uint32_t)K_EACH;
        const T *even = (const T *)args.even + (uint64_t)row * args.even_stride + first;
        const T *odd = (const T *)args.odd + (uint64_t)row * args.odd_stride + first;
        const pack a = *(const pack *)even, b = *(const pack *)odd;
        both made;
        K_UNROLL
        for (int e = 0; e < K_EACH; e++) {
            made.at[2 * e] = a.at[e];
            made.at[2 * e + 1] = b.at[e];
        }
        ((both *)out->data)[at] = made;
    }
}
