/* block_scan.h - what the lanes before have, joined. Every lane calls. The order of joining depends
 * on the number of lanes alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BLOCK_SCAN_H
#define MP_KERNEL_BLOCK_SCAN_H

#include "kernel/core/prelude.h"

/* Defines `type name(type value, type *all)`: `value` of the lanes before this one joined by
 * `combine` of a and b, or `none` for the first; `*all` is that of all lanes. */
#if K_HOST
#define K_BLOCK_SCAN(name, type, none, combine)          \
    K_FN type name(type value, type *all) {              \
        type *slot = (type *)k_host_slots();             \
        slot[threadIdx.x] = value;                       \
        __syncthreads();                                 \
        type before = (none), joined = (none);           \
        for (uint32_t i = 0; i < blockDim.x; i++) {      \
            const type a = joined, b = slot[i];          \
            before = i == threadIdx.x ? joined : before; \
            joined = combine;                            \
        }                                                \
        __syncthreads();                                 \
        *all = joined;                                   \
        return before;                                   \
    }
#else
/* Within each warp by shuffles, then over the warps. */
#define K_BLOCK_SCAN(name, type, none, combine)                                \
    K_FN type name(type value, type *all) {                                    \
        __shared__ type slot[32];                                              \
        const uint32_t lanes = blockDim.x < 32 ? blockDim.x : 32;              \
        const uint32_t mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;   \
        const uint32_t lane = threadIdx.x % lanes, warp = threadIdx.x / lanes; \
        type joined = value;                                                   \
        for (uint32_t step = 1; step < lanes; step *= 2) {                     \
            const type a = __shfl_up_sync(mask, joined, step), b = joined;     \
            joined = lane >= step ? combine : joined;                          \
        }                                                                      \
        if (lane == lanes - 1) {                                               \
            slot[warp] = joined;                                               \
        }                                                                      \
        const type left = __shfl_up_sync(mask, joined, 1);                     \
        __syncthreads();                                                       \
        type before = (none), total = (none);                                  \
        for (uint32_t w = 0; w < blockDim.x / lanes; w++) {                    \
            const type a = total, b = slot[w];                                 \
            before = w == warp ? total : before;                               \
            total = combine;                                                   \
        }                                                                      \
        __syncthreads();                                                       \
        *all = total;                                                          \
        const type a = before, b = left;                                       \
        return lane == 0 ? before : combine;                                   \
    }
#endif

K_BLOCK_SCAN(k_block_scan, int64_t, 0, a + b)

/* For kernels that include block.h before: running sums or products of the type it sums in. */
#ifdef K_SUM_WORD
K_FN K_SUM k_join(K_SUM a, K_SUM b, int product) {
    return product ? a * b : a + b;
}

K_BLOCK_SCAN(k_block_sums, K_SUM, (K_SUM)0, a + b)
K_BLOCK_SCAN(k_block_products, K_SUM, (K_SUM)1, a *b)

/* What the lanes before this one have, joined; `*all` is that of all lanes. Every lane calls. */
K_FN K_SUM k_block_join(K_SUM value, int product, K_SUM *all) {
    return product ? k_block_products(value, all) : k_block_sums(value, all);
}
#endif

#endif
