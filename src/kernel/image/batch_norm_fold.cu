/* batch_norm_fold.cu - makes one factor and one summand for each channel of what a normalisation is
 * given, in the type V that its tensor is computed in.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel_args.h"
#include "kernel/core/prelude.h"

#if V_DOUBLE
#define F_ROOT sqrt
#else
#define F_ROOT sqrtf
#endif

K_KERNEL(mp_batch_norm_fold_args, args) {
    const T *__restrict__ scale = (const T *)args.scale;
    const T *__restrict__ bias = (const T *)args.bias;
    const U *__restrict__ mean = (const U *)args.mean;
    const U *__restrict__ var = (const U *)args.var;
    V *__restrict__ out = (V *)args.out;
    K_GRID_LOOP(c, args.channels) {
        const V factor = (V)T_load(scale[c]) / F_ROOT((V)U_load(var[c]) + (V)args.epsilon);
        out[c] = factor;
        out[args.channels + c] = (V)T_load(bias[c]) - (V)U_load(mean[c]) * factor;
    }
}
