/* nbits_numbers.h - packed integers of K_BITS bits as the numbers of two bytes that they mean.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NBITS_NUMBERS_H
#define MP_KERNEL_NBITS_NUMBERS_H

#include "kernel/quantize/nbits_pair.h"

#define p_product K_JOIN(k_pair_fma_, K_T0)

/* Eight in the order that they are in, times a scale that a pair has twice. Integers less their
 * zero point are exact, and so a product is rounded once. */
K_FN void p_numbers(p_words words, p_base base, uint32_t scale, uint32_t *out) {
    uint32_t pairs[4];
    p_pairs(words, base, pairs);
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t turned = K_BITS == 8 ? pairs[i]
                                            : __byte_perm(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1],
                                                          i / 2 ? 0x7632 : 0x5410);
        out[i] = p_product(turned, scale, 0);
    }
}

#endif
