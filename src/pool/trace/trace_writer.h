/* trace_writer.h - a file that appears only once it is whole.
 *
 * Bytes go to a file beside the target, which takes the target's place at the end. A writer
 * remembers the first failure, so that the code that fills it need not check each call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_WRITER_H
#define MP_POOL_TRACE_WRITER_H

#include "base/status.h"

#include <stddef.h>

typedef struct mp_writer mp_writer;

/* Gives: `*out`, until close. Fails: NOT_FOUND (the place cannot be written, or holds something
 * that is not a plain file), OUT_OF_MEMORY. */
mp_status mp__writer_open(const char *path, mp_writer **out);

void mp__writer_put(mp_writer *writer, const void *data, size_t size);
void mp__writer_print(mp_writer *writer, const char *format, ...) MP_PRINTF(2, 3);

/* Takes: `writer`. With `status` MP_OK the file takes its place; otherwise, or when that fails,
 * nothing is left of it. Returns `status`, or why the file could not be written. */
mp_status mp__writer_close(mp_writer *writer, mp_status status);

#endif
