/* atomic.h - atomic steps on one element of type T in global memory, on a GPU and between the
 * worker threads of the emulated device. No order with other memory is promised.
 *
 *   k_bits          T's bits as an unsigned integer;  k_to_bits, k_from_bits
 *   k_atomic_read   the bits at an address
 *   k_atomic_swap   puts `wanted` where `seen` is; returns what was there
 *   k_atomic_add    adds in one step where the hardware can: 1; otherwise does nothing: 0
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ATOMIC_H
#define MP_KERNEL_ATOMIC_H

#include "kernel/core/prelude.h"

typedef uint8_t k_bits_i8, k_bits_u8;
typedef uint16_t k_bits_i16, k_bits_u16, k_bits_f16, k_bits_bf16;
typedef uint32_t k_bits_i32, k_bits_u32, k_bits_f32;
typedef uint64_t k_bits_i64, k_bits_u64, k_bits_f64;
typedef K_JOIN(k_bits_, K_T0) k_bits;

K_FN k_bits k_to_bits(T value) {
    union {
        T value;
        k_bits bits;
    } both;
    both.value = value;
    return both.bits;
}

K_FN T k_from_bits(k_bits bits) {
    union {
        k_bits bits;
        T value;
    } both;
    both.bits = bits;
    return both.value;
}

#if K_HOST

K_FN k_bits k_atomic_read(const T *at) {
    return __atomic_load_n((const k_bits *)at, __ATOMIC_RELAXED);
}

K_FN k_bits k_atomic_swap(T *at, k_bits seen, k_bits wanted) {
    __atomic_compare_exchange_n((k_bits *)at, &seen, wanted, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return seen;
}

K_FN int k_atomic_add(T *at, T value) {
    (void)at;
    (void)value;
    return 0;
}

#else

K_FN k_bits k_atomic_read(const T *at) {
    return *(const volatile k_bits *)at;
}

K_FN uint32_t k_cas(uint32_t *at, uint32_t seen, uint32_t wanted) {
    return atomicCAS(at, seen, wanted);
}
K_FN uint64_t k_cas(uint64_t *at, uint64_t seen, uint64_t wanted) {
    return atomicCAS((unsigned long long *)at, (unsigned long long)seen,
                     (unsigned long long)wanted);
}
K_FN uint16_t k_cas(uint16_t *at, uint16_t seen, uint16_t wanted) {
    return atomicCAS((unsigned short *)at, seen, wanted);
}
/* A byte goes with the aligned word around it, whose other bytes are put back as they are. The word
 * must lie within memory that is the caller's. */
K_FN uint8_t k_cas(uint8_t *at, uint8_t seen, uint8_t wanted) {
    const uint32_t shift = (uint32_t)((uint64_t)at % 4) * 8;
    uint32_t *word = (uint32_t *)((uint64_t)at / 4 * 4);
    uint32_t before = *(volatile uint32_t *)word;
    for (;;) {
        const uint8_t now = (uint8_t)(before >> shift);
        if (now != seen) {
            return now;
        }
        const uint32_t after = (before & ~(0xffu << shift)) | (uint32_t)wanted << shift;
        const uint32_t found = atomicCAS(word, before, after);
        if (found == before) {
            return seen;
        }
        before = found;
    }
}

K_FN k_bits k_atomic_swap(T *at, k_bits seen, k_bits wanted) {
    return k_cas((k_bits *)at, seen, wanted);
}

/* For `type`, added as the hardware's `word`. */
#define K_ADD_ONCE(type, word)                  \
    K_FN int k_add_once(type *at, type value) { \
        atomicAdd((word *)at, (word)value);     \
        return 1;                               \
    }
K_ADD_ONCE(float, float)
K_ADD_ONCE(double, double)
K_ADD_ONCE(int32_t, int)
K_ADD_ONCE(uint32_t, unsigned)
K_ADD_ONCE(int64_t, unsigned long long)
K_ADD_ONCE(uint64_t, unsigned long long)
#undef K_ADD_ONCE
template <typename Narrow> K_FN int k_add_once(Narrow *, Narrow) {
    return 0;
}

/* Floats of 16 bits are added two at a time, which is what the hardware does: to the other one of
 * the aligned word -0, which changes no number. */
#define K_PAIR_f16   "f16x2"
#define K_PAIR_bf16  "bf16x2"
#define K_PAIRS_f16  K_PTX
#define K_PAIRS_bf16 (K_PTX && __CUDA_ARCH__ >= 900)

K_FN int k_atomic_add(T *at, T value) {
#if K_JOIN(K_PAIRS_, K_T0)
    const uint32_t shift = (uint32_t)((uint64_t)at % 4) * 8;
    const uint32_t other = 0x80000000u >> shift;
    const void *const word = (const void *)((uint64_t)at / 4 * 4);
    asm volatile("red.global.add.noftz." K_JOIN(K_PAIR_, K_T0) " [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(word)),
                   "r"((uint32_t)k_to_bits(value) << shift | other)
                 : "memory");
    return 1;
#else
    return k_add_once(at, value);
#endif
}

#endif
#endif
