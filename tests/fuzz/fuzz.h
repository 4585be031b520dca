/* fuzz.h - what a fuzz target is: the function that libFuzzer and its kin call too, and words that
 * its inputs are likely to be made of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_FUZZ_FUZZ_H
#define MP_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Handles any input, and aborts where something is wrong. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // NOLINT

extern const char *const fuzz_words[]; /* NULL ends */

#endif
