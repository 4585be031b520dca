/* turns.cu - the n-th roots of one, which transforms of length n share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/spectrum.h"
#include "kernel/turn.h"

K_KERNEL(mp_turns_args, args) {
    K_GRID_LOOP(k, args.n) {
        const k_turn turn = k_turn_of(k, args.n);
        ((s_complex *)args.out)[k].re = (T)turn.cosine;
        ((s_complex *)args.out)[k].im = (T)-turn.sine;
    }
}
