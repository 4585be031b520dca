/* batch_norm_running.cu - moves running statistics (T) towards those of a batch (U).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel_args.h"
#include "kernel/core/prelude.h"

K_FN T r_move(T old, U found, float momentum) {
    return T_store(
        (TC)((UC)T_load(old) * (UC)momentum + (UC)U_load(found) * (UC)(1.0f - momentum)));
}

K_KERNEL(mp_batch_norm_running_args, args) {
    const T *mean = (const T *)args.mean;
    const T *var = (const T *)args.var;
    const U *found = (const U *)args.found;
    T *out_mean = (T *)args.out_mean;
    T *out_var = (T *)args.out_var;
    K_GRID_LOOP(c, args.channels) {
        if (out_mean) {
            out_mean[c] = r_move(mean[c], found[c], args.momentum);
        }
        if (out_var) {
            out_var[c] = r_move(var[c], found[args.channels + c], args.momentum);
        }
    }
}
