/* prelude.h - the common ground of CUDA (NVRTC, nvcc) and C11 (gcc, clang; the host device).
 *
 * A kernel file is compiled once for each instance of a row in kernels.txt, with
 *   K_NAME        the instance's name, which becomes its symbol
 *   K_T0 .. K_T2  words of element types (f32, i64, b16, ...)
 *   K_<KEY>       the other columns of the row
 * and defines one entry point with K_KERNEL or K_BLOCK_KERNEL. This header gives it
 *   T, U, V       the types K_T0..K_T2 as stored;  TC, UC, VC  what they are computed in
 *   T_load(x), T_store(c), T_FLOAT, T_SIGNED, T_DOUBLE  (and U_..., V_...)
 *   K_M(exp)(x)   a math function of TC's precision (TC is float or double)
 *   K_GRID_LOOP(i, n)   visits each index once over the whole grid
 *   K_BLOCK_LOOP(i, n)  visits each index once over the lanes of a block
 *   K_SHARED(type, name)  the block's shared memory, of the launch's shared_bytes
 * and gives gcc the words of CUDA that it lacks: threadIdx.x, blockIdx, blockDim, gridDim,
 * __shared__, __syncthreads().
 *
 * Two kinds of kernel:
 *   K_KERNEL        no barriers; only grid loops; right for any grid. K_KERNEL_IN_80 says how many
 *                   lanes a block has, and that each may have 80 registers.
 *   K_BLOCK_KERNEL  lanes of a block meet at __syncthreads(); right for any power of two of lanes,
 *                   one included. Rows are dealt by blockIdx.x in a loop that steps gridDim.x. One
 *                   that needs many registers says K_BLOCK_KERNEL_UP_TO and how many lanes at most;
 *                   with K_BLOCK_KERNEL_IN_64 it has 64 registers a lane, so that a multiprocessor
 *                   has 1024 lanes, and with K_BLOCK_KERNEL_WITHIN as many as it says, where the
 *                   compiler is new enough to be told. That also tells the compiler that it may
 *                   use so many: left to itself it takes few, and then loads that were asked for
 *                   at once come in turn.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PRELUDE_H
#define MP_KERNEL_PRELUDE_H

#include "kernel/core/types.h"

/* Whether asm is PTX: not where tests run this text on threads. */
#if defined(__CUDACC_RTC__) || defined(__NVCC__)
#define K_PTX 1
#else
#define K_PTX 0
#endif

#define K_JOIN2(a, b) a##b
#define K_JOIN(a, b)  K_JOIN2(a, b)

#if defined(__CUDACC__) /* nvcc and NVRTC */

#define K_HOST     0
#define K_FN       [[maybe_unused]] static __device__ __forceinline__
#define K_ALIGN(n) __align__(n)
#define K_UNROLL   _Pragma("unroll")
#define K_ONE_COPY _Pragma("unroll 1") /* of a loop's text: fewer registers, more blocks */

/* The kernel before may still be running when these blocks arrive (programmatic dependent launch):
 * they wait until it has ended and written all, and only then let those of the next kernel come. */
K_FN void k_enter(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#define K_DEVICE_ENTRY(bounds, args_type, a)                                        \
    static __device__ __forceinline__ void k_body(const args_type &a);              \
    extern "C" __global__ void bounds K_NAME(const __grid_constant__ args_type a) { \
        k_enter();                                                                  \
        k_body(a);                                                                  \
    }                                                                               \
    static __device__ __forceinline__ void k_body(const args_type &a)

#define K_KERNEL(args_type, a) K_DEVICE_ENTRY(, args_type, a)
#define K_KERNEL_IN_80(lanes, args_type, a) \
    K_DEVICE_ENTRY(__launch_bounds__(lanes, 768 / (lanes)), args_type, a)
#define K_BLOCK_KERNEL(args_type, a) K_DEVICE_ENTRY(, args_type, a)
#define K_BLOCK_KERNEL_UP_TO(lanes, args_type, a) \
    K_DEVICE_ENTRY(__launch_bounds__(lanes), args_type, a)
#define K_BLOCK_KERNEL_IN_64(lanes, args_type, a) \
    K_DEVICE_ENTRY(__launch_bounds__(lanes, 1024 / (lanes)), args_type, a)

#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1204
#define K_WITHIN(registers, lanes) __maxnreg__(registers)
#else
#define K_WITHIN(registers, lanes) __launch_bounds__(lanes)
#endif
#define K_BLOCK_KERNEL_WITHIN(registers, lanes, args_type, a) \
    K_DEVICE_ENTRY(K_WITHIN(registers, lanes), args_type, a)

#define K_GRID_LOOP(i, n)                                                     \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)blockDim.x * gridDim.x)
#define K_BLOCK_LOOP(i, n) for (int64_t i = threadIdx.x; i < (n); i += blockDim.x)

#if K_PTX
#define K_SHARED(type, name)                                   \
    extern __shared__ __align__(16) unsigned char k_dynamic[]; \
    type *name = (type *)k_dynamic
#else
#define K_SHARED(type, name) type *name = (type *)k_shared_bytes()
#endif

#define K_INF (__int_as_float(0x7f800000))
#define K_NAN (__int_as_float(0x7fffffff))

#else /* gcc or clang, as C11 */

#include "device/host/host_functions.h"
#include "device/host/host_lane.h"

#include <math.h>

#define K_HOST     1
#define K_FN       static inline __attribute__((unused))
#define K_ALIGN(n) __attribute__((aligned(n)))
#define K_UNROLL
#define K_ONE_COPY

/* NOLINTBEGIN(bugprone-reserved-identifier): these are CUDA's names */
#define threadIdx       (k_lane.thread)
#define blockIdx        (k_lane.block)
#define blockDim        (k_lane.block_dim)
#define gridDim         (k_lane.grid_dim)
#define __shared__      static _Thread_local /* one block at a time on a worker thread */
#define __syncthreads() k_host_barrier()
/* NOLINTEND(bugprone-reserved-identifier) */

/* What models spend time in is compiled for AVX2, too: the same operations, more at a time. */
#ifdef K_HOST_WIDE
#define K_HOST_CLONES __attribute__((target_clones("avx2", "default"), flatten))
#else
#define K_HOST_CLONES
#endif

#define K_HOST_ENTRY(args_type, a)                   \
    static void K_JOIN(K_NAME, _body)(args_type a);  \
    void K_NAME(const void *packed);                 \
    K_HOST_CLONES void K_NAME(const void *packed) {  \
        K_JOIN(K_NAME, _body)(*(args_type *)packed); \
    }                                                \
    static void K_JOIN(K_NAME, _body)(args_type a)

#define K_KERNEL(args_type, a)                                K_HOST_ENTRY(const args_type, a)
#define K_KERNEL_IN_80(lanes, args_type, a)                   K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL(args_type, a)                          K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL_UP_TO(lanes, args_type, a)             K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL_IN_64(lanes, args_type, a)             K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL_WITHIN(registers, lanes, args_type, a) K_HOST_ENTRY(const args_type, a)

/* A lane's contiguous share of n: the compiler may then vectorise the loop. */
static inline int64_t k_share(int64_t n, int64_t lane, int64_t lanes) {
    const int64_t whole = n / lanes;
    const int64_t rest = n % lanes;
    return whole * lane + (lane < rest ? lane : rest);
}
#define K_GRID_LANE                                           ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define K_GRID_LANES                                          ((int64_t)blockDim.x * gridDim.x)
#define K_GRID_LOOP(i, n)                                               \
    for (int64_t i = k_share((n), K_GRID_LANE, K_GRID_LANES),           \
                 i##_end = k_share((n), K_GRID_LANE + 1, K_GRID_LANES); \
         i < i##_end; i++)
#define K_BLOCK_LOOP(i, n) \
    for (int64_t i = threadIdx.x, i##_step = blockDim.x, i##_end = (n); i < i##_end; i += i##_step)

#define K_SHARED(type, name) type *name = (type *)k_host_shared()

#define K_INF INFINITY
#define K_NAN NAN

#endif

#include "kernel/core/scalar.h"

/* The math function of K_T0's precision. As the macros below, it means what K_T0 is where it is
 * used: fused kernels have functions of several types. */
#define K_M(fn)         K_JOIN(K_MATH_, K_T0)(fn)
#define K_MATH_f64(fn)  fn
#define K_MATH_f32(fn)  fn##f
#define K_MATH_f16(fn)  fn##f
#define K_MATH_bf16(fn) fn##f

/* Typedefs, since -DT=... would break headers. */
#ifdef K_T0
typedef K_JOIN(k_, K_T0) T;
typedef K_JOIN(kc_, K_T0) TC;
#define T_load   K_JOIN(k_load_, K_T0)
#define T_store  K_JOIN(k_store_, K_T0)
#define T_FLOAT  K_JOIN(K_IS_FLOAT_, K_T0)
#define T_DOUBLE K_JOIN(K_IS_DOUBLE_, K_T0)
#define T_SIGNED K_JOIN(K_IS_SIGNED_, K_T0)
#if T_DOUBLE
typedef double TA; /* what sums of T are kept in */
#elif T_FLOAT
typedef float TA;
#elif T_SIGNED
typedef int64_t TA;
#else
typedef uint64_t TA;
#endif
#endif

#ifdef K_T1
typedef K_JOIN(k_, K_T1) U;
typedef K_JOIN(kc_, K_T1) UC;
#define U_load   K_JOIN(k_load_, K_T1)
#define U_store  K_JOIN(k_store_, K_T1)
#define U_FLOAT  K_JOIN(K_IS_FLOAT_, K_T1)
#define U_DOUBLE K_JOIN(K_IS_DOUBLE_, K_T1)
#define U_SIGNED K_JOIN(K_IS_SIGNED_, K_T1)
#endif

#ifdef K_T2
typedef K_JOIN(k_, K_T2) V;
typedef K_JOIN(kc_, K_T2) VC;
#define V_load   K_JOIN(k_load_, K_T2)
#define V_store  K_JOIN(k_store_, K_T2)
#define V_FLOAT  K_JOIN(K_IS_FLOAT_, K_T2)
#define V_DOUBLE K_JOIN(K_IS_DOUBLE_, K_T2)
#define V_SIGNED K_JOIN(K_IS_SIGNED_, K_T2)
#endif

#endif
