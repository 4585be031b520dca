/* moe_combine.cu - the results of a row's routes, by their weights. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"

K_KERNEL(mp_moe_combine_args, args) {
    const T *x = (const T *)args.x;
    const float *weight = (const float *)args.weight;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = i / args.columns, column = i - row * args.columns;
        float sum = 0;
        for (int32_t j = 0; j < args.k; j++) {
            const int64_t route = row * args.k + j;
            sum += weight[route] * T_load(x[route * args.columns + column]);
        }
        ((T *)args.out)[i] = T_store(sum);
    }
}
