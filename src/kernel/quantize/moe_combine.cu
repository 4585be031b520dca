/* moe_combine.cu - the results of a row's routes, by their weights. Bound by memory: a lane has
 * four columns where rows are packs of them, otherwise one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/vector.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

enum { FOUR = K_MOE_COMBINED };

typedef struct K_ALIGN(sizeof(float) * FOUR) floats {
    float at[FOUR];
} floats;

K_FN floats floats_at(const float *from, int packed) {
    floats f = {{0}};
    if (packed) {
        return *(const floats *)(const void *)from;
    }
    f.at[0] = from[0];
    return f;
}

K_FN floats elements_at(const T *from, int packed) {
    floats f = {{0}};
    if (packed) {
        const k_vector e = *(const k_vector *)(const void *)from;
        K_UNROLL
        for (int i = 0; i < FOUR; i++) {
            f.at[i] = T_load(e.lane[i]);
        }
        return f;
    }
    f.at[0] = T_load(from[0]);
    return f;
}

K_FN void add(floats *sum, const floats *x, float weight) {
    K_UNROLL
    for (int i = 0; i < FOUR; i++) {
        sum->at[i] += weight * x->at[i];
    }
}

/* A route's result from its parts, which are added in their order. */
K_FN floats joined(const mp_moe_combine_args *args, int64_t route, int64_t column) {
    const float *part = (const float *)args->x + route * args->columns + column;
    floats sum = {{0}};
    for (int32_t i = 0; i < args->parts; i++) {
        const floats one = floats_at(part + i * args->routes * args->columns, args->packed);
        add(&sum, &one, 1);
    }
    if (args->bias != 0) {
        const int64_t expert = (int64_t)((const k_pair *)args->pairs)[route].key;
        const T *bias = (const T *)args->bias + expert * args->columns + column;
        const floats one = elements_at(bias, args->packed);
        add(&sum, &one, 1);
    }
    return sum;
}

K_KERNEL(mp_moe_combine_args, args) {
    const T *x = (const T *)args.x;
    const float *weight = (const float *)args.weight;
    const int64_t wide = args.packed ? FOUR : 1, across = args.columns / wide;
    K_GRID_LOOP(i, args.count / wide) {
        const int64_t row = i / across, column = (i - row * across) * wide;
        T *out = (T *)args.out + row * args.columns + column;
        floats sum = {{0}};
        for (int32_t j = 0; j < args.k; j++) {
            const int64_t route = row * args.k + j;
            const floats one = args.parts > 1
                                   ? joined(&args, route, column)
                                   : elements_at(x + route * args.columns + column, args.packed);
            add(&sum, &one, weight[route]);
        }
        k_vector made;
        K_UNROLL
        for (int n = 0; n < FOUR; n++) {
            made.lane[n] = T_store(sum.at[n]);
        }
        if (args.packed) {
            *(k_vector *)(void *)out = made;
        } else {
            out[0] = made.lane[0];
        }
    }
}
