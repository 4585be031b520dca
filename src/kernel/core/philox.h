/* philox.h - random words by counting: Philox4x32-10 of Salmon, Moraes, Dror and Shaw. The words at
 * a place depend on seed, run and place alone, so results do not depend on the grid.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PHILOX_H
#define MP_KERNEL_PHILOX_H

#include "kernel/core/prelude.h"

typedef struct k_words {
    uint32_t at[4];
} k_words;

K_FN k_words k_philox(uint64_t seed, uint64_t run, uint64_t place) {
    uint32_t key[2];
    k_words w;
    key[0] = (uint32_t)seed;
    key[1] = (uint32_t)(seed >> 32);
    w.at[0] = (uint32_t)place;
    w.at[1] = (uint32_t)(place >> 32);
    w.at[2] = (uint32_t)run;
    w.at[3] = (uint32_t)(run >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * w.at[0];
        const uint64_t b = (uint64_t)0xcd9e8d57u * w.at[2];
        const uint32_t first = (uint32_t)(b >> 32) ^ w.at[1] ^ key[0];
        const uint32_t third = (uint32_t)(a >> 32) ^ w.at[3] ^ key[1];
        w.at[0] = first;
        w.at[1] = (uint32_t)b;
        w.at[2] = third;
        w.at[3] = (uint32_t)a;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return w;
}

/* In [0, 1), every value of 24 or 53 bits equally likely. */
K_FN float k_uniform_f32(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

K_FN double k_uniform_f64(uint32_t high, uint32_t low) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

#endif
