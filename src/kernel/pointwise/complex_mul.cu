/* complex_mul.cu - out[i] = x[..] * y[..] of complex numbers, both repeated as broadcasting asks.
 * Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/pointwise/pointwise_args.h"

typedef struct c_pair {
    T re, im;
} c_pair;

K_WALK_PACK(c_pack, c_pair)
K_WALK_READ(c_read, c_pack, c_pair)

K_FN c_pair c_product(c_pair x, c_pair y, int conjugate) {
    const TC a = T_load(x.re), b = T_load(x.im), c = T_load(y.re);
    const TC d = conjugate ? -T_load(y.im) : T_load(y.im);
    c_pair out;
    out.re = T_store(a * c - b * d);
    out.im = T_store(a * d + b * c);
    return out;
}

K_KERNEL(mp_complex_mul_args, args) {
    const c_pair *x = (const c_pair *)args.x; /* out may be x or y where that has its shape */
    const c_pair *y = (const c_pair *)args.y;
    c_pair *out = (c_pair *)args.out;
    const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, c_pair));
    K_GRID_LOOP(i, packs) {
        const k_spot spot = k_spot_of(&args.walk, i, 2);
        const c_pack left = c_read(x, &args.walk, &spot, 0);
        const c_pack right = c_read(y, &args.walk, &spot, 1);
        c_pack made;
        for (int32_t k = 0; k < K_WALK; k++) {
            made.lane[k] = c_product(left.lane[k], right.lane[k], args.conjugate);
        }
        *(c_pack *)(out + spot.first) = made;
    }
    const int64_t done = packs * K_WALK;
    K_GRID_LOOP(i, args.walk.count - done) {
        uint32_t at[2];
        k_walk_to(&args.walk, (uint32_t)(done + i), 2, at);
        out[done + i] = c_product(x[at[0]], y[at[1]], args.conjugate);
    }
}
