/* pointwise2.cu - out[i] = f(x[..], y[..]) with both sides repeated as broadcasting asks. Bound by
 * memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

K_FN P_OUT p_apply(T left, T right, float a, float b) {
    const TC x = T_load(left);
    const TC y = T_load(right);
    (void)a;
    (void)b;
    return P_STORE(K_EXPRESSION);
}

K_WALK_PACK(p_pack, T)
K_WALK_PACK(p_made, P_OUT)
K_WALK_READ(p_read, p_pack, T)

K_KERNEL(mp_pointwise2_args, args) {
    const T *x = (const T *)args.x; /* out may be x or y where that has its shape */
    const T *y = (const T *)args.y;
    P_OUT *out = (P_OUT *)args.out;
    if (k_walk_is_flat(&args.walk)) {
        const int x_step = !(args.walk.repeated & 1);
        const int y_step = !(args.walk.repeated & 2);
        const T x0 = x[0];
        const T y0 = y[0];
        K_GRID_LOOP(i, args.walk.count) {
            out[i] = p_apply(x_step ? x[i] : x0, y_step ? y[i] : y0, args.a, args.b);
        }
        return;
    }
    const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, P_OUT));
    const int plain = k_walk_is_plain(&args.walk, 2, K_WALK_SKEW(x, T) | K_WALK_SKEW(y, T));
    K_ONE_COPY
    K_GRID_LOOP(i, packs) {
        p_pack left, right;
        if (plain) {
            left = p_read_plain(x, i);
            right = p_read_plain(y, i);
        } else {
            const k_spot spot = k_spot_of(&args.walk, i, 2);
            left = p_read(x, &args.walk, &spot, 0);
            right = p_read(y, &args.walk, &spot, 1);
        }
        p_made made;
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = p_apply(left.lane[k], right.lane[k], args.a, args.b);
        }
        ((p_made *)out)[i] = made;
    }
    const int64_t done = packs * K_WALK;
    K_ONE_COPY
    K_GRID_LOOP(i, args.walk.count - done) {
        uint32_t at[2];
        k_walk_to(&args.walk, (uint32_t)(done + i), 2, at);
        out[done + i] = p_apply(x[at[0]], y[at[1]], args.a, args.b);
    }
}
