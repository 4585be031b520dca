/* shortage.h - the sentence of the last request for memory that failed, for those who learn only
 * that one did: a host between the pool and its user, such as ONNX Runtime, may drop the sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_SHORTAGE_H
#define MP_BASE_SHORTAGE_H

#include "base/status.h"

#include <stddef.h>

/* Keeps the thread's sentence as that of a shortage, if `status` is OUT_OF_MEMORY. Threads: any. */
void mp_shortage_keep(mp_status status);

/* What this thread kept last; empty for nothing. Borrowed until it keeps the next. */
const char *mp_shortage_here(void);

/* How many were kept so far by all threads. Threads: any. Blocks: no. */
size_t mp_shortage_count(void);

/* The last that this thread kept, or any thread of the process, into `text`, cut to fit `size`.
 * Threads: any. */
void mp_shortage_find(int of_process, char *text, size_t size);

#endif
