/* trace_text.h - names that callers gave, made fit for a file. They may hold any bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_TEXT_H
#define MP_POOL_TRACE_TEXT_H

#include <stddef.h>

/* Copies `text` (at most `size` bytes, less if a 0 ends it) as valid UTF-8; a byte that is not part
 * of it becomes '?'. `out` has room for `size` + 1. */
void mp__text_clean(const char *text, size_t size, char *out);

#endif
