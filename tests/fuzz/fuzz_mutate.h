/* fuzz_mutate.h - how an input of a fuzz target is changed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_FUZZ_FUZZ_MUTATE_H
#define MP_TESTS_FUZZ_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_MAX = 4096 };

/* Changes the input in `bytes`, which has room for FUZZ_INPUT_MAX, in one or a few places; `other`
 * is an input to borrow from. `random` is a row of test_random. */
void fuzz_mutate(uint8_t *bytes, size_t *size, const uint8_t *other, size_t other_size,
                 uint64_t *random);

#endif
