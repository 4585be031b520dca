/* pointwise2_broadcast.cu - out[i] = f(x[..], y[..]) with both sides repeated as broadcasting asks.
 * Apart from pointwise2.cu, since its many arguments would make every launch dearer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/index.h"
#define P_BINARY
#include "kernel/pointwise.h"
#include "kernel/pointwise_args.h"

K_KERNEL(mp_broadcast2_args, args) {
    const T *x = (const T *)args.x; /* out may be x or y where that has its shape */
    const T *y = (const T *)args.y;
    P_OUT *out = (P_OUT *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets(&args.layout, i, 2, at);
        out[i] = p_apply(x[at[0]], y[at[1]], args.a, args.b);
    }
}
