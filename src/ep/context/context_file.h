/* context_file.h - files beside a compiled model.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_CONTEXT_FILE_H
#define MP_EP_CONTEXT_FILE_H

#include "base/status.h"

#include <stddef.h>

/* The file `name` in the folder of `model`. Gives: `*out`, until free. Fails: INVALID_ARGUMENT for
 * a name that is a path, and without a model's path. */
mp_status mp__context_file_path(const char *model, const char *name, char **out);

/* Writes the file whole or not at all. */
mp_status mp__context_file_write(const char *path, const void *bytes, size_t size);

/* Gives: `*out`, until free. Fails: INVALID_ARGUMENT for what is no regular file, or larger than
 * `most`. */
mp_status mp__context_file_read(const char *path, size_t most, unsigned char **out, size_t *size);

#endif
