/* block_scan.h - sums of all that the lanes before have. Every lane calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BLOCK_SCAN_H
#define MP_KERNEL_BLOCK_SCAN_H

#include "kernel/prelude.h"

/* The sum of `value` over the lanes before this one; `*all` is that of all lanes. */
K_FN int64_t k_block_scan(int64_t value, int64_t *all) {
#if K_HOST
    int64_t *slot = (int64_t *)k_host_slots();
    const uint32_t lane = threadIdx.x;
    slot[lane] = value;
    __syncthreads();
    int64_t before = 0, sum = 0;
    for (uint32_t i = 0; i < blockDim.x; i++) {
        before += i < lane ? slot[i] : 0;
        sum += slot[i];
    }
    __syncthreads();
    *all = sum;
    return before;
#else
    __shared__ int64_t slot[33];
    const uint32_t lanes = blockDim.x < 32 ? blockDim.x : 32;
    const uint32_t mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
    const uint32_t lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
    const uint32_t warps = blockDim.x / lanes;
    int64_t sum = value;
    for (uint32_t step = 1; step < lanes; step *= 2) {
        const int64_t other = __shfl_up_sync(mask, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == lanes - 1) {
        slot[warp] = sum;
    }
    __syncthreads();
    int64_t before = sum - value, total = 0;
    for (uint32_t w = 0; w < warps; w++) {
        before += w < warp ? slot[w] : 0;
        total += slot[w];
    }
    __syncthreads();
    *all = total;
    return before;
#endif
}

#endif
