/* cosine_window.cu - windows that are a sum of cosines.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/typed_store.h"
#include "kernel/signal/root.h"
#include "kernel/signal/signal_args.h"

K_KERNEL(mp_cosine_window_args, args) {
    K_GRID_LOOP(i, args.count) {
        const double one = k_root_of(i % args.period, args.period).cosine;
        const double two = 2 * one * one - 1;
        k_typed_store(args.out, i, args.type, args.a0 - args.a1 * one + args.a2 * two);
    }
}
