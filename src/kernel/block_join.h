/* block_join.h - running sums or products of type K_SUM over the lanes of a block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BLOCK_JOIN_H
#define MP_KERNEL_BLOCK_JOIN_H

#include "kernel/block.h"

K_FN K_SUM k_join(K_SUM a, K_SUM b, int product) {
    return product ? a * b : a + b;
}

/* What the lanes before this one have, joined; `*all` is that of all lanes. Every lane calls. */
K_FN K_SUM k_block_join(K_SUM value, int product, K_SUM *all) {
    const K_SUM none = product ? (K_SUM)1 : (K_SUM)0;
#if K_HOST
    K_SUM *slot = (K_SUM *)k_host_slots();
    slot[threadIdx.x] = value;
    __syncthreads();
    K_SUM before = none, sum = none;
    for (uint32_t i = 0; i < blockDim.x; i++) {
        before = i == threadIdx.x ? sum : before;
        sum = k_join(sum, slot[i], product);
    }
    __syncthreads();
    *all = sum;
    return before;
#else
    __shared__ K_SUM slot[32];
    const uint32_t lanes = blockDim.x < 32 ? blockDim.x : 32;
    const uint32_t mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
    const uint32_t lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
    K_SUM sum = value;
    for (uint32_t step = 1; step < lanes; step *= 2) {
        const K_SUM other = __shfl_up_sync(mask, sum, step);
        sum = lane >= step ? k_join(other, sum, product) : sum;
    }
    if (lane == lanes - 1) {
        slot[warp] = sum;
    }
    const K_SUM left = __shfl_up_sync(mask, sum, 1);
    __syncthreads();
    K_SUM before = none, total = none;
    for (uint32_t w = 0; w < blockDim.x / lanes; w++) {
        before = w == warp ? total : before;
        total = k_join(total, slot[w], product);
    }
    __syncthreads();
    *all = total;
    return lane == 0 ? before : k_join(before, left, product);
#endif
}

#endif
