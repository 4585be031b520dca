/* reduce_block.cu - one block for each output: the lanes share its elements.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce.h"

K_BLOCK_KERNEL(mp_reduce_args, args) {
    T *out = (T *)args.out;
    for (int64_t o = blockIdx.x; o < args.outputs; o += gridDim.x) {
        const T *x = (const T *)args.x + r_kept(&args, o);
#if R_OP == R_logsumexp
        K_SUM largest = -(K_SUM)K_INF;
        K_BLOCK_LOOP(i, args.reduced) {
            const K_SUM value = r_load(x[r_dropped(&args, i)]);
            largest = value > largest || value != value ? value : largest;
        }
        largest = k_block_max(largest);
        const K_SUM base = largest - largest == 0 ? largest : 0; /* not inf, not NaN */
        K_SUM sum = 0;
        K_BLOCK_LOOP(i, args.reduced) {
            sum += (K_SUM)exp((double)(r_load(x[r_dropped(&args, i)]) - base));
        }
        sum = k_block_sum(sum);
        if (threadIdx.x == 0) {
            out[o] = T_store((TC)(log((double)sum) + (double)base));
        }
#else
        K_SUM sum = r_identity();
        K_BLOCK_LOOP(i, args.reduced) {
            sum = r_add(sum, r_load(x[r_dropped(&args, i)]));
        }
        sum = r_block(sum);
        if (threadIdx.x == 0) {
            out[o] = r_store(sum, args.reduced);
        }
#endif
    }
}
