/* moe_sums.h - what becomes of the sums of a tile of routes and K_MOE_COLUMNS columns, which lie in
 * shared memory, so that one copy of what is done with them is enough.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_SUMS_H
#define MP_KERNEL_MOE_SUMS_H

#include "kernel/quantize/moe.h"

enum {
    M_TWOS = K_MOE_COLUMNS / 2,
    M_PITCH = K_MOE_COLUMNS + 4, /* floats from route to route */
};

typedef struct K_ALIGN(8) m_two {
    float at[2];
} m_two;

/* Sums of a part of K, for moe_combine.cu. */
K_FN void m_put_part(const mp_moe_product_args *args, const m_tile *tile, int32_t part, int64_t r,
                     int64_t column, m_two two) {
    const int64_t row = part * args->routes + tile->routes[r].index;
    *(m_two *)(void *)((float *)args->out + row * args->w.n + column) = two;
}

/* Of part `part` of K and the columns from `first` on. All lanes of the block call. */
K_FN void m_put_sums(const mp_moe_product_args *args, const m_tile *tile, int32_t part,
                     int64_t first, const float *all) {
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < (int32_t)tile->count * M_TWOS;
         i += (int32_t)blockDim.x) {
        const int32_t r = i / M_TWOS, column = i % M_TWOS * 2;
        const m_two two = *(const m_two *)(const void *)(all + r * M_PITCH + column);
        if (first + column >= args->w.n) {
            continue;
        }
        if (args->parts > 1) {
            m_put_part(args, tile, part, r, first + column, two);
        } else {
            m_put(args, tile, r, first + column, two.at[0], two.at[1]);
        }
    }
}

#endif
