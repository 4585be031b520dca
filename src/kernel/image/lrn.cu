/* lrn.cu - local response normalisation: each element is divided by a power of the squares around
 * it, over channels. One lane an element; neighbouring lanes read neighbouring elements in either
 * order of channels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel.h"

K_KERNEL(mp_lrn_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    const int64_t step = args.channels.inner;
    K_GRID_LOOP(i, args.count) {
        const int64_t c = k_channel(&args.channels, i);
        const int64_t behind = args.channels.channels - 1 - c;
        const int64_t first = c < args.before ? c : args.before;
        const int64_t last = behind < args.after ? behind : args.after;
        TC sum = (TC)0;
        for (int64_t at = i - first * step; at <= i + last * step; at += step) {
            const TC value = T_load(x[at]);
            sum += value * value;
        }
        const TC base = (TC)args.bias + (TC)args.share * sum;
        out[i] = T_store(T_load(x[i]) * K_M(pow)(base, -(TC)args.beta));
    }
}
