/* unpickle.h - reads the pickles we write, as Python's literals.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_UNPICKLE_H
#define MP_TESTS_UNIT_UNPICKLE_H

#include <stddef.h>

/* The value as text, as Python's repr would write it. Fails the test at any opcode that PyTorch's
 * memory viewer does not know, or where the pickle does not end with its one value. Gives: a text,
 * to be freed with free(). */
char *test_unpickle(const char *pickle, size_t size);

#endif
