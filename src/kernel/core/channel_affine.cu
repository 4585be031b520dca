/* channel_affine.cu - a factor and a summand for each channel. Bound by memory: one read and one
 * write an element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel_args.h"
#include "kernel/core/walk.h"

K_WALK_PACK(elements, T)
K_WALK_PACK(numbers, TC)
K_WALK_READ(elements_read, elements, T)
K_WALK_READ(numbers_read, numbers, TC)

K_KERNEL(mp_channel_affine_args, args) {
    const T *x = (const T *)args.x; /* may be `out` */
    const TC *factors = (const TC *)args.factors;
    const TC *summands = factors + args.channels;
    T *out = (T *)args.out;
    const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, T));
    K_ONE_COPY
    K_GRID_LOOP(i, packs) {
        const k_spot spot = k_spot_of(&args.walk, i, 2);
        const elements from = elements_read(x, &args.walk, &spot, 0);
        const numbers factor = numbers_read(factors, &args.walk, &spot, 1);
        const numbers summand = numbers_read(summands, &args.walk, &spot, 1);
        elements made;
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = T_store(T_load(from.lane[k]) * factor.lane[k] + summand.lane[k]);
        }
        *(elements *)(out + spot.first) = made;
    }
    const int64_t done = packs * K_WALK;
    K_ONE_COPY
    K_GRID_LOOP(i, args.walk.count - done) {
        uint32_t at[2];
        k_walk_to(&args.walk, (uint32_t)(done + i), 2, at);
        out[done + i] = T_store(T_load(x[at[0]]) * factors[at[1]] + summands[at[1]]);
    }
}
