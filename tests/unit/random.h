/* random.h - well mixed numbers, the same on every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_RANDOM_H
#define MP_TESTS_UNIT_RANDOM_H

#include <stdint.h>

/* Spreads every bit of a number over all of the result. */
static inline uint64_t test_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The next of a row of numbers; `*state` is the row. */
static inline uint64_t test_random(uint64_t *state) {
    return test_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

#endif
