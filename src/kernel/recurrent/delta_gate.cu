/* delta_gate.cu - the gates of linear attention, computed in float whatever the type: how much of
 * its state a head keeps, and how much of a token it takes up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/recurrent/delta_args.h"

K_KERNEL(mp_delta_gate_args, args) {
    K_GRID_LOOP(i, args.count) {
        const int64_t head = i % args.heads;
        const float x = T_load(((const T *)args.x)[i]) + args.bias[head];
        const float softplus = (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
        ((T *)args.decay)[i] = T_store(args.rate[head] * softplus);
        if (args.beta) {
            ((T *)args.beta)[i] = T_store(1.0f / (1.0f + expf(-T_load(((const T *)args.y)[i]))));
        }
    }
}
