/* escape.h - text from outside in sentences that every reader can decode.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_ESCAPE_H
#define MP_BASE_ESCAPE_H

#include <stddef.h>

/* Copies `text` into `out`, of `capacity` bytes (at least 1), ended by a NUL and cut between
 * characters where it is too long. Bytes that are no UTF-8, and control characters but for tabs and
 * line ends, become \xNN; a text without them stays as it is. */
void mp_escape(char *out, size_t capacity, const char *text);

/* The bytes of the character that `text`, which a NUL ends, begins with; 0 where that is no UTF-8,
 * or a control character other than a tab and the end of a line. */
size_t mp_character_size(const char *text);

#endif
