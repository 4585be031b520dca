/* word.h - the elements of a 32-bit word, two of them or one, as they are computed with. Elements
 * of 16 bits that are taken out of memory or put there one by one cost a permutation each; as
 * halves of a register they cost none.
 *
 * Gives T_unpack(word, values), T_repack(values) and K_WORD, the elements of a word, for f32, f16
 * and bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_WORD_H
#define MP_KERNEL_WORD_H

#include "kernel/core/prelude.h"

enum { K_WORD = 4 / sizeof(T) };
#define T_unpack K_JOIN(k_unpack_, K_T0)
#define T_repack K_JOIN(k_repack_, K_T0)

K_FN void k_unpack_f32(uint32_t word, float *values) {
    values[0] = k_float_of_bits(word);
}

K_FN uint32_t k_repack_f32(const float *values) {
    return k_bits_of_float(values[0]);
}

K_FN void k_unpack_f16(uint32_t word, float *values) {
#if !K_PTX
    const k_f16 low = {(uint16_t)word}, high = {(uint16_t)(word >> 16)};
    values[0] = k_load_f16(low);
    values[1] = k_load_f16(high);
#else
    asm("{ .reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high; }"
        : "=f"(values[0]), "=f"(values[1])
        : "r"(word));
#endif
}

K_FN uint32_t k_repack_f16(const float *values) {
#if K_PTX && __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
    return word;
#else
    return k_store_f16(values[0]).bits | (uint32_t)k_store_f16(values[1]).bits << 16;
#endif
}

K_FN void k_unpack_bf16(uint32_t word, float *values) {
    values[0] = k_float_of_bits(word << 16);
    values[1] = k_float_of_bits(word & 0xffff0000u);
}

K_FN uint32_t k_repack_bf16(const float *values) {
#if K_PTX && __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
    return word;
#else
    return k_store_bf16(values[0]).bits | (uint32_t)k_store_bf16(values[1]).bits << 16;
#endif
}

#endif
