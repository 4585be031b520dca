/* fuzz_mutate.h - how an input of a fuzz target is changed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_FUZZ_FUZZ_MUTATE_H
#define MP_TESTS_FUZZ_FUZZ_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_MAX = 4096 };

/* The next of a row of well mixed numbers; `*state` is the row. */
uint64_t fuzz_random(uint64_t *state);

/* Changes the input in `bytes`, which has room for FUZZ_INPUT_MAX, in one or a few places; `other`
 * is an input to borrow from. */
void fuzz_mutate(uint8_t *bytes, size_t *size, const uint8_t *other, size_t other_size,
                 uint64_t *random);

#endif
