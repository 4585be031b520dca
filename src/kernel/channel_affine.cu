/* channel_affine.cu - a factor and a summand for each channel. Bound by memory: one read and one
 * write an element. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/channel.h"

K_KERNEL(mp_channel_affine_args, args) {
    const T *x = (const T *)args.x; /* may be `out` */
    const TC *__restrict__ factors = (const TC *)args.factors;
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        const int64_t c = k_channel(&args.channels, i);
        out[i] = T_store(T_load(x[i]) * factors[c] + factors[args.channels.channels + c]);
    }
}
