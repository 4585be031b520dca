/* nbits_pair.h - packed integers of K_BITS bits, 2, 4 or 8, as pairs of T, or of bfloat16 where T
 * is float, for tensor cores, less their zero point: small integers, which those have exactly.
 *
 * A lane has eight neighbours along k, half a word of 2 bits each, a word of 4 or two of 8. Bits of
 * a weight become the low bits of a number that is a power of two, and that is taken off with the
 * zero point. With 2 and 4 bits the pairs are (0, 4), (1, 5), (2, 6), (3, 7), since those come out
 * together; what they are multiplied with is turned alike (p_turned).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_PAIR_H
#define MP_KERNEL_NBITS_PAIR_H

#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/quantize_args.h"

#define P_IS_F16_f16  1
#define P_IS_F16_bf16 0
#define P_IS_F16_f32  0 /* whose products are those of bfloat16 */
#define P_IS_F16      K_JOIN(P_IS_F16_, K_T0)

/* Eight weights. */
typedef struct K_ALIGN(K_BITS) p_words {
#if K_BITS == 2
    uint16_t at[1];
#else
    uint32_t at[K_BITS / 4];
#endif
} p_words;

/* What the numbers have too much, zero point included; `sixteen` for those that are 16 times as
 * large. And the bits of the first pair, in a register: an instruction has room for one constant,
 * and the other one would be made anew for each. */
typedef struct p_base {
    uint32_t one, sixteen, mask;
    float number;
} p_base;

K_FN uint32_t p_mask(const k_nbits *w) {
    return ((1u << w->bits) - 1) * 0x00010001u;
}

/* `zero` may have further bits, up to 8. */
K_FN p_base p_base_of(uint32_t zero, uint32_t mask) {
    p_base base = {};
    base.mask = mask;
#if P_IS_F16
    base.one = 0xe400e400u | (zero * 0x00010001u & mask);              /* -(1024 + zero) */
    base.sixteen = k_pair_fma_f16(base.one, 0x3c003c00u, 0x63806380u); /* 960 more */
#elif K_BITS < 8
    base.one = 0xc300c300u | (zero * 0x00010001u & mask); /* -(128 + zero) */
#else
    base.number = 8388608.0f + (float)zero;
#endif
    return base;
}

#if K_BITS == 2
K_FN void p_pairs(p_words words, p_base base, uint32_t *out) {
    const uint32_t fours = __byte_perm(words.at[0], 0, 0x4140);
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t bits = fours >> i * 2 & base.mask;
#if P_IS_F16
        out[i] = k_pair_fma_f16(bits | 0x64006400u, 0x3c003c00u, base.one);
#else
        out[i] = k_pair_fma_bf16(bits | 0x43004300u, 0x3f803f80u, base.one);
#endif
    }
}
#elif K_BITS == 4 && P_IS_F16
K_FN void p_pairs(p_words words, p_base base, uint32_t *out) {
    K_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint32_t w = words.at[0] >> i * 8;
        out[2 * i] = k_pair_fma_f16((w & base.mask) | 0x64006400u, 0x3c003c00u, base.one);
        out[2 * i + 1] =
            k_pair_fma_f16((w & base.mask << 4) | 0x64006400u, 0x2c002c00u, base.sixteen);
    }
}
#elif K_BITS == 4
K_FN void p_pairs(p_words words, p_base base, uint32_t *out) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t pair = (words.at[0] >> i * 4 & base.mask) | 0x43004300u;
        out[i] = k_pair_fma_bf16(pair, 0x3f803f80u, base.one);
    }
}
#elif P_IS_F16
K_FN void p_pairs(p_words words, p_base base, uint32_t *out) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t pair = __byte_perm(words.at[i / 2], 0x64646464u, i % 2 ? 0x4342 : 0x4140);
        out[i] = k_pair_fma_f16(pair, 0x3c003c00u, base.one);
    }
}
#else
K_FN float p_number(uint32_t word, int i) {
    return k_float_of_bits(__byte_perm(word, 0x4b000000u, 0x7440u + (unsigned)i));
}

K_FN void p_pairs(p_words words, p_base base, uint32_t *out) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        const float low = p_number(words.at[i / 2], i % 2 * 2) - base.number;
        out[i] = k_pair_bf16(low, p_number(words.at[i / 2], i % 2 * 2 + 1) - base.number);
    }
}
#endif

#if K_BITS > 2

/* ---- at less cost, zero point and all ---- */

/* A number is (q + P_BIAS) * P_UNIT, in the last two pairs P_HIGH times that. Integers of float16
 * are the low bits of a number, so a subnormal one, which tensor cores take as any other. The
 * pairs' order is that of p_units_turned(). */
#if P_IS_F16
#define P_UNIT 0x1p-24f
#define P_BIAS 0
#define P_HIGH (K_BITS == 4 ? 16 : 1)
#else
#define P_UNIT 1.0f
#define P_BIAS (K_BITS == 4 ? 128 : 0)
#define P_HIGH 1
#endif

K_FN void p_units(p_words words, uint32_t mask, uint32_t *out) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
#if K_BITS == 4 && P_IS_F16
        out[i] = words.at[0] >> i % 2 * 8 & mask << i / 2 * 4;
#elif K_BITS == 4
        out[i] = (words.at[0] >> (i % 2 * 8 + i / 2 * 4) & mask) | 0x43004300u;
#elif P_IS_F16
        (void)mask;
        out[i] = __byte_perm(words.at[i / 2], 0, i % 2 ? 0x4342 : 0x4140);
#else
        const float low = p_number(words.at[i / 2], i % 2 * 2) - 8388608.0f;
        (void)mask;
        out[i] = k_pair_bf16(low, p_number(words.at[i / 2], i % 2 * 2 + 1) - 8388608.0f);
#endif
    }
}

/* Twice is not at all. */
K_FN void p_units_turned(const uint32_t *from, uint32_t *to) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        to[i] = K_BITS == 8 ? from[i]
                            : __byte_perm(from[i % 2], from[i % 2 + 2], i / 2 ? 0x7632 : 0x5410);
    }
}

/* Where element k of a row lies in rows whose eights are turned so. */
K_FN int32_t p_units_place(int32_t k) {
    return K_BITS == 8 ? k : (k & ~7) | (k % 2 * 4 + k % 4 / 2 * 2 + k % 8 / 4);
}

#endif

/* Eight elements of T in the order of the pairs. */
K_FN void p_turned(const uint32_t *from, uint32_t *to) {
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        to[i] = K_BITS == 8 ? from[i]
                            : __byte_perm(from[i / 2], from[i / 2 + 2], i % 2 ? 0x7632 : 0x5410);
    }
}

#endif
