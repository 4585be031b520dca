/* late.h - block kernels that begin before the kernel before them has ended.
 *
 *   K_BLOCK_KERNEL_LATE  as K_BLOCK_KERNEL_UP_TO (prelude.h); each lane calls k_wait() before it
 *                        reads or writes anything but constants of the model (mp_node.constants),
 *                        which no kernel in the stream writes
 *
 *   K_BLOCK_KERNEL_LATE_OF  the same with so few registers a lane that a multiprocessor has so many
 *                        blocks, its own and those of the next kernel
 *
 *   K_BLOCK_KERNEL_LATE_WITHIN  the same with registers and lanes as K_BLOCK_KERNEL_WITHIN says
 *
 *   k_fetch(from, is, words)  16 aligned bytes that nothing reads again, where `is` is not 0, else
 *                        zeros; asked for where it stands, and not where they are used
 *
 *   k_fetch_half(from, is, words)  the same of 8 bytes
 *
 *   k_fetch_there(from, words)  16 bytes that are there: in a loop, what is loaded only
 *                        sometimes goes through other registers and is waited for in between
 *
 *   k_bring_near(from)  has the bytes around `from` on their way to the cache of the multiprocessor
 *
 *   k_bring(from)  has the 128 bytes around `from` on their way from memory to the cache that all
 *                  multiprocessors share
 *
 * So the latency of the constants passes while the kernel before is at work. The next kernel may
 * come as soon as k_wait() has returned. One that defines K_LETS_AT_ONCE as 1 before it includes
 * this lets it come at once, which is right, too: the next one waits for this one, which does not
 * end before it has waited itself. So the many weights of both are on their way. For others that is
 * slower, since blocks of kernels far behind take the room: a graph of small products of 4 bits
 * takes 0.87 ms on an H100 instead of 0.81.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LATE_H
#define MP_KERNEL_LATE_H

#include "kernel/core/prelude.h"

/* Whether the next kernel's blocks may come at once, and not only behind k_wait(). */
#ifndef K_LETS_AT_ONCE
#define K_LETS_AT_ONCE 0
#endif

/* Lets the next kernel's blocks come, as soon as all blocks have called it or ended. */
K_FN void k_let_next(void) {
#if K_PTX && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Returns when the kernel before has ended and written all. */
K_FN void k_wait(void) {
#if K_PTX && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (!K_LETS_AT_ONCE) {
        k_let_next();
    }
}

K_FN void k_fetch(const void *from, int is, uint32_t *words) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        words[i] = 0;
    }
#if !K_PTX
    if (is) {
        __builtin_memcpy(words, from, 16);
    }
#else
    asm volatile("{ .reg .pred is;\n"
                 "setp.ne.s32 is, %5, 0;\n"
                 "@is ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
                 : "l"(from), "r"(is)
                 : "memory");
#endif
}

K_FN void k_fetch_half(const void *from, int is, uint32_t *words) {
    words[0] = words[1] = 0;
#if !K_PTX
    if (is) {
        __builtin_memcpy(words, from, 8);
    }
#else
    asm volatile("{ .reg .pred is;\n"
                 "setp.ne.s32 is, %3, 0;\n"
                 "@is ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(words[0]), "+r"(words[1])
                 : "l"(from), "r"(is)
                 : "memory");
#endif
}

K_FN void k_fetch_there(const void *from, uint32_t *words) {
#if !K_PTX
    __builtin_memcpy(words, from, 16);
#else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(from)
                 : "memory");
#endif
}

K_FN void k_bring_near(const void *from) {
#if K_PTX
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
#else
    (void)from;
#endif
}

K_FN void k_bring(const void *from) {
#if K_PTX
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
    (void)from;
#endif
}

#if K_HOST
#define K_BLOCK_KERNEL_LATE(lanes, args_type, a)                   K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL_LATE_OF(lanes, blocks, args_type, a)        K_HOST_ENTRY(const args_type, a)
#define K_BLOCK_KERNEL_LATE_WITHIN(registers, lanes, args_type, a) K_HOST_ENTRY(const args_type, a)
#else
#define K_LATE_ENTRY(bounds, args_type, a)                                          \
    static __device__ __forceinline__ void k_body(const args_type &a);              \
    extern "C" __global__ void bounds K_NAME(const __grid_constant__ args_type a) { \
        if (K_LETS_AT_ONCE) {                                                       \
            k_let_next();                                                           \
        }                                                                           \
        k_body(a);                                                                  \
    }                                                                               \
    static __device__ __forceinline__ void k_body(const args_type &a)

#define K_BLOCK_KERNEL_LATE(lanes, args_type, a) \
    K_LATE_ENTRY(__launch_bounds__(lanes), args_type, a)
#define K_BLOCK_KERNEL_LATE_OF(lanes, blocks, args_type, a) \
    K_LATE_ENTRY(__launch_bounds__(lanes, blocks), args_type, a)
#define K_BLOCK_KERNEL_LATE_WITHIN(registers, lanes, args_type, a) \
    K_LATE_ENTRY(K_WITHIN(registers, lanes), args_type, a)
#endif

#endif
