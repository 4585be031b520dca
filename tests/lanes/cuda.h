/* cuda.h - what CUDA C++ has and C++ has not, for kernels whose text is compiled as for a GPU and
 * run by a thread for each lane: names of places, barriers, exchanges within a warp, and the few
 * arithmetic functions. Included before the text (-include). One block runs at a time, so what is
 * shared is static.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_CUDA_H
#define MP_TESTS_LANES_CUDA_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <sched.h>

#define __CUDACC__
#define __CUDA_ARCH__ 700 /* no tensor cores, whose text is PTX: matrix.h stands for them */
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __maxnreg__(n)
#define __shared__ static

struct cuda_place {
    unsigned x, y, z;
};
extern thread_local cuda_place threadIdx, blockIdx;
extern cuda_place blockDim, gridDim;

void __syncthreads();
void *k_shared_bytes();
/* Gives what lane `from` of the caller's warp has put. */
void lane_exchange(const void *put, void *got, size_t size, unsigned from);

/* Gives what all lanes of the caller's warp have put, in their order. */
void lane_gather(const void *put, void *got, size_t size);

/* A lane waits for another process. */
inline void lane_rest() {
    sched_yield();
}

inline unsigned lane_number() {
    return threadIdx.x % 32;
}

template <typename V> V __shfl_sync(unsigned, V value, unsigned from) {
    V got;
    lane_exchange(&value, &got, sizeof value, from % 32);
    return got;
}
template <typename V> V __shfl_xor_sync(unsigned mask, V value, unsigned bits) {
    return __shfl_sync(mask, value, lane_number() ^ bits);
}
template <typename V> V __shfl_up_sync(unsigned mask, V value, unsigned by) {
    return __shfl_sync(mask, value, lane_number() >= by ? lane_number() - by : lane_number());
}

inline unsigned __ballot_sync(unsigned, int holds) {
    int all[32];
    unsigned bits = 0;
    lane_gather(&holds, all, sizeof holds);
    for (unsigned i = 0; i < 32; i++) {
        bits |= (unsigned)(all[i] != 0) << i;
    }
    return bits;
}
inline int __all_sync(unsigned mask, int holds) {
    return __ballot_sync(mask, holds) == 0xffffffffu;
}
inline int __any_sync(unsigned mask, int holds) {
    return __ballot_sync(mask, holds) != 0;
}
inline int __reduce_min_sync(unsigned, int value) {
    int all[32];
    lane_gather(&value, all, sizeof value);
    for (int other : all) {
        value = other < value ? other : value;
    }
    return value;
}
inline int __reduce_max_sync(unsigned mask, int value) {
    return ~__reduce_min_sync(mask, ~value);
}
inline unsigned atomicOr(unsigned *place, unsigned bits) {
    return __atomic_fetch_or(place, bits, __ATOMIC_RELAXED);
}
inline int __ffs(int word) {
    return __builtin_ffs(word);
}
inline void __syncwarp() {
    __ballot_sync(0xffffffffu, 0);
}

inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) {
        sum += (int8_t)(a >> i * 8) * (int8_t)(b >> i * 8);
    }
    return sum;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
    const uint64_t both = (uint64_t)high << 32 | low;
    unsigned made = 0;
    for (int i = 0; i < 4; i++) {
        made |= (unsigned)(both >> (which >> i * 4 & 7) * 8 & 255) << i * 8;
    }
    return made;
}
inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}
inline int __clz(unsigned bits) {
    return bits == 0 ? 32 : __builtin_clz(bits);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
template <typename To, typename From> To lane_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "");
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float __int_as_float(int x) {
    return lane_bits<float>(x);
}
inline float __uint_as_float(unsigned x) {
    return lane_bits<float>(x);
}
inline unsigned __float_as_uint(float x) {
    return lane_bits<unsigned>(x);
}
#endif
