/* where.cu - out[i] = condition[i] ? x[i] : y[i], each repeated as broadcasting asks. Elements are
 * only moved, so their size is all that matters. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/pointwise/pointwise_args.h"

K_WALK_PACK(flags, k_bool)
K_WALK_PACK(elements, T)
K_WALK_READ(flags_read, flags, k_bool)
K_WALK_READ(elements_read, elements, T)

K_KERNEL(mp_where_args, args) {
    const k_bool *condition = (const k_bool *)args.condition;
    const T *x = (const T *)args.x; /* out may be x or y where that has its shape */
    const T *y = (const T *)args.y;
    T *out = (T *)args.out;
    const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, T));
    const uint64_t skew = K_WALK_SKEW(condition, k_bool) | K_WALK_SKEW(x, T) | K_WALK_SKEW(y, T);
    const int plain = k_walk_is_plain(&args.walk, 3, skew);
    K_ONE_COPY
    K_GRID_LOOP(i, packs) {
        elements first, second, made;
        flags chosen;
        if (plain) {
            first = elements_read_plain(x, i);
            second = elements_read_plain(y, i);
            chosen = flags_read_plain(condition, i);
        } else {
            const k_spot spot = k_spot_of(&args.walk, i, 3);
            first = elements_read(x, &args.walk, &spot, 1);
            second = elements_read(y, &args.walk, &spot, 2);
            chosen = flags_read(condition, &args.walk, &spot, 0);
        }
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = k_load_bool(chosen.lane[k]) ? first.lane[k] : second.lane[k];
        }
        ((elements *)out)[i] = made;
    }
    const int64_t done = packs * K_WALK;
    K_ONE_COPY
    K_GRID_LOOP(i, args.walk.count - done) {
        uint32_t at[3];
        k_walk_to(&args.walk, (uint32_t)(done + i), 3, at);
        out[done + i] = k_load_bool(condition[at[0]]) ? x[at[1]] : y[at[2]];
    }
}
