/* file_io.h - whole reads and writes of open files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_FILE_IO_H
#define MP_BASE_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>

/* Reads or writes all of `size` bytes, through interrupts by signals. False with errno where that
 * fails; 0 in it where a file that is read ends before, or no more can be written. */
bool mp_file_read(int fd, void *data, size_t size);
bool mp_file_write(int fd, const void *data, size_t size);

#endif
