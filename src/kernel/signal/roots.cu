/* roots.cu - roots of unity, which transforms share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/root.h"
#include "kernel/signal/spectrum.h"

/* The square of a distance, modulo n; its sign where the distance is not one of the chirp. */
K_FN int64_t square_at(const mp_roots_args *args, int64_t k) {
    const int64_t d = k < args->count - k ? k : args->count - k;
    return 2 * d < args->n ? (int64_t)((uint64_t)d * (uint64_t)d % (uint64_t)args->n) : -1;
}

K_FN int64_t factor_at(const mp_roots_args *args, int64_t k) {
    return args->columns > 0 ? (k / args->columns) * (k % args->columns) : k;
}

K_KERNEL(mp_roots_args, args) {
    K_GRID_LOOP(k, args.count) {
        const int64_t at = args.chirp ? square_at(&args, k) : factor_at(&args, k) * args.step;
        s_complex out = {0, 0};
        if (at >= 0) {
            const k_root root = k_root_of(at, args.n);
            out.re = (T)root.cosine;
            out.im = (T)(args.inverse ? root.sine : -root.sine);
        }
        ((s_complex *)args.out)[k] = out;
    }
}
