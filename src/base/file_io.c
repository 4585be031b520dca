/* file_io.c - see file_io.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file_io.h"

#include <errno.h>
#include <unistd.h>

/* What one call did: how far to go on, 0 to try again, -1 for the end. */
static ssize_t step_of(ssize_t done) {
    if (done < 0 && errno == EINTR) {
        return 0;
    }
    if (done == 0) {
        errno = 0;
    }
    return done > 0 ? done : -1;
}

bool mp_file_read(int fd, void *data, size_t size) {
    char *at = data;
    while (size > 0) {
        const ssize_t step = step_of(read(fd, at, size));
        if (step < 0) {
            return false;
        }
        at += step;
        size -= (size_t)step;
    }
    return true;
}

bool mp_file_write(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        const ssize_t step = step_of(write(fd, at, size));
        if (step < 0) {
            return false;
        }
        at += step;
        size -= (size_t)step;
    }
    return true;
}
