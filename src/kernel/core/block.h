/* block.h - sums and maxima over the lanes of a block. Every lane calls, every lane gets the
 * result; two barriers or none with one lane. The order of additions depends on the number of lanes
 * alone, so results repeat.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BLOCK_H
#define MP_KERNEL_BLOCK_H

#include "kernel/core/prelude.h"

#if K_HOST

#define K_BLOCK_REDUCE(name, type, combine)                       \
    K_FN type name(type value) {                                  \
        type *slot = (type *)k_host_slots();                      \
        const uint32_t lane = threadIdx.x;                        \
        uint32_t half = blockDim.x / 2;                           \
        if (half == 0) {                                          \
            return value;                                         \
        }                                                         \
        slot[lane] = value;                                       \
        __syncthreads();                                          \
        for (; half > 0; half /= 2) {                             \
            if (lane < half) {                                    \
                const type a = slot[lane], b = slot[lane + half]; \
                slot[lane] = combine;                             \
            }                                                     \
            __syncthreads();                                      \
        }                                                         \
        value = slot[0];                                          \
        __syncthreads();                                          \
        return value;                                             \
    }

#else

/* Within a warp by shuffles, then the warps' results by the first warp. Blocks of fewer than 32
 * lanes are one part of a warp. */
#define K_BLOCK_REDUCE(name, type, combine)                                  \
    K_FN type name(type value) {                                             \
        __shared__ type slot[32];                                            \
        const uint32_t lanes = blockDim.x < 32 ? blockDim.x : 32;            \
        const uint32_t mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1; \
        const uint32_t warps = blockDim.x < 32 ? 1 : blockDim.x / 32;        \
        for (uint32_t half = lanes / 2; half > 0; half /= 2) {               \
            const type a = value, b = __shfl_xor_sync(mask, value, half);    \
            value = combine;                                                 \
        }                                                                    \
        if (warps == 1) {                                                    \
            return value;                                                    \
        }                                                                    \
        if (threadIdx.x % 32 == 0) {                                         \
            slot[threadIdx.x / 32] = value;                                  \
        }                                                                    \
        __syncthreads();                                                     \
        value = slot[threadIdx.x & (warps - 1)];                             \
        for (uint32_t half = warps / 2; half > 0; half /= 2) {               \
            const type a = value, b = __shfl_xor_sync(mask, value, half);    \
            value = combine;                                                 \
        }                                                                    \
        __syncthreads();                                                     \
        return value;                                                        \
    }

#endif

/* A NaN on either side wins, as in NumPy. */
K_BLOCK_REDUCE(k_block_sum_f32, float, a + b)
K_BLOCK_REDUCE(k_block_max_f32, float, a != a ? a : b != b ? b : a > b ? a : b)
K_BLOCK_REDUCE(k_block_min_f32, float, a != a ? a : b != b ? b : a < b ? a : b)
K_BLOCK_REDUCE(k_block_product_f32, float, a *b)
K_BLOCK_REDUCE(k_block_sum_f64, double, a + b)
K_BLOCK_REDUCE(k_block_max_f64, double, a != a ? a : b != b ? b : a > b ? a : b)
K_BLOCK_REDUCE(k_block_min_f64, double, a != a ? a : b != b ? b : a < b ? a : b)
K_BLOCK_REDUCE(k_block_product_f64, double, a *b)
K_BLOCK_REDUCE(k_block_sum_i64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b))
K_BLOCK_REDUCE(k_block_max_i64, int64_t, a > b ? a : b)
K_BLOCK_REDUCE(k_block_min_i64, int64_t, a < b ? a : b)
K_BLOCK_REDUCE(k_block_product_i64, int64_t, (int64_t)((uint64_t)a *(uint64_t)b))
K_BLOCK_REDUCE(k_block_sum_u64, uint64_t, a + b)
K_BLOCK_REDUCE(k_block_max_u64, uint64_t, a > b ? a : b)
K_BLOCK_REDUCE(k_block_min_u64, uint64_t, a < b ? a : b)
K_BLOCK_REDUCE(k_block_product_u64, uint64_t, a *b)

/* For sums of T: float or double, or 64-bit integers. On the emulated device, whose one lane adds a
 * whole row in order, floats are summed in double. */
#if T_DOUBLE || (T_FLOAT && K_HOST)
typedef double K_SUM;
#define K_SUM_WORD f64
#elif T_FLOAT
typedef float K_SUM;
#define K_SUM_WORD f32
#elif T_SIGNED
typedef int64_t K_SUM;
#define K_SUM_WORD i64
#else
typedef uint64_t K_SUM;
#define K_SUM_WORD u64
#endif
#define k_block_sum     K_JOIN(k_block_sum_, K_SUM_WORD)
#define k_block_max     K_JOIN(k_block_max_, K_SUM_WORD)
#define k_block_min     K_JOIN(k_block_min_, K_SUM_WORD)
#define k_block_product K_JOIN(k_block_product_, K_SUM_WORD)

#endif
