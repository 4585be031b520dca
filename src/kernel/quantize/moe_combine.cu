/* moe_combine.cu - the results of a row's routes, by their weights. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

/* A route's result from its parts, which are added in their order. */
K_FN float joined(const mp_moe_combine_args *args, int64_t route, int64_t column) {
    const float *part = (const float *)args->x + route * args->columns + column;
    float sum = 0;
    for (int32_t i = 0; i < args->parts; i++) {
        sum += part[i * args->routes * args->columns];
    }
    if (args->bias != 0) {
        const int64_t expert = (int64_t)((const k_pair *)args->pairs)[route].key;
        sum += T_load(((const T *)args->bias)[expert * args->columns + column]);
    }
    return sum;
}

K_KERNEL(mp_moe_combine_args, args) {
    const T *x = (const T *)args.x;
    const float *weight = (const float *)args.weight;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = i / args.columns, column = i - row * args.columns;
        float sum = 0;
        for (int32_t j = 0; j < args.k; j++) {
            const int64_t route = row * args.k + j;
            sum += weight[route] * (args.parts > 1 ? joined(&args, route, column)
                                                   : T_load(x[route * args.columns + column]));
        }
        ((T *)args.out)[i] = T_store(sum);
    }
}
