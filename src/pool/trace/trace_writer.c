/* trace_writer.c - a file that appears only once it is whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_SIZE = 1 << 16, NAME_TRIES = 100 };

struct mp_writer {
    int file;
    int fault; /* errno of the first failure; 0 for none */
    size_t filled;
    char target[PATH_MAX];
    char fresh[PATH_MAX + 32]; /* the file beside it */
    char buffer[BUFFER_SIZE];
};

/* errno as text, without the static storage of strerror. */
static const char *reason(int fault, char *text, size_t size) {
    return strerror_r(fault, text, size);
}

static mp_status cannot_write(const char *path, int fault) {
    char text[128];
    return MP_FAIL(NOT_FOUND, "cannot write \"%.700s\": %s", path, /* the reason must fit as well */
                   reason(fault, text, sizeof text));
}

/* Where the file is to lie: behind a link, at its end. */
static mp_status resolve(const char *path, char *target) {
    struct stat found;
    if (path == NULL || path[0] == '\0') {
        return MP_FAIL(INVALID_ARGUMENT, "no path to write the trace to");
    }
    if (stat(path, &found) != 0) {
        if (errno != ENOENT) {
            return cannot_write(path, errno);
        }
        const int length = snprintf(target, PATH_MAX, "%s", path);
        return length < PATH_MAX ? MP_OK : cannot_write(path, ENAMETOOLONG);
    }
    if (!S_ISREG(found.st_mode)) {
        return MP_FAIL(NOT_FOUND, "cannot write \"%s\": it is there and not a plain file", path);
    }
    return realpath(path, target) != NULL ? MP_OK : cannot_write(path, errno);
}

/* A name of its own for each writer of each process, so that two never write one file. */
static mp_status create_beside(mp_writer *writer) {
    static atomic_uint next;
    for (int i = 0; i < NAME_TRIES; i++) {
        (void)snprintf(writer->fresh, sizeof writer->fresh, "%s.%ld-%u.tmp", writer->target,
                       (long)getpid(), atomic_fetch_add(&next, 1));
        writer->file = open(writer->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->file >= 0) {
            return MP_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return cannot_write(writer->target, errno);
}

mp_status mp__writer_open(const char *path, mp_writer **out) {
    mp_writer *writer = malloc(sizeof *writer);
    if (writer == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no memory to write \"%s\"", path != NULL ? path : "");
    }
    writer->fault = 0;
    writer->filled = 0;
    mp_status status = resolve(path, writer->target);
    if (status == MP_OK) {
        status = create_beside(writer);
    }
    if (status != MP_OK) {
        free(writer);
        return status;
    }
    *out = writer;
    return MP_OK;
}

static void flush(mp_writer *writer) {
    size_t done = 0;
    while (done < writer->filled && writer->fault == 0) {
        const ssize_t wrote = write(writer->file, writer->buffer + done, writer->filled - done);
        if (wrote >= 0) {
            done += (size_t)wrote;
        } else if (errno != EINTR) {
            writer->fault = errno;
        }
    }
    writer->filled = 0;
}

void mp__writer_put(mp_writer *writer, const void *data, size_t size) {
    const char *bytes = data;
    while (size > 0 && writer->fault == 0) {
        const size_t room = BUFFER_SIZE - writer->filled;
        const size_t part = MP_MIN(size, room);
        memcpy(writer->buffer + writer->filled, bytes, part);
        writer->filled += part;
        bytes += part;
        size -= part;
        if (writer->filled == BUFFER_SIZE) {
            flush(writer);
        }
    }
}

void mp__writer_print(mp_writer *writer, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof text) {
        writer->fault = EOVERFLOW; /* only short texts of our own come this way */
        return;
    }
    mp__writer_put(writer, text, (size_t)length);
}

/* Makes the file last and puts it in its place. */
static void settle(mp_writer *writer) {
    if (writer->fault == 0 && fsync(writer->file) != 0) {
        writer->fault = errno;
    }
    if (close(writer->file) != 0 && writer->fault == 0) {
        writer->fault = errno;
    }
    if (writer->fault == 0 && rename(writer->fresh, writer->target) != 0) {
        writer->fault = errno;
    }
}

mp_status mp__writer_close(mp_writer *writer, mp_status status) {
    if (status == MP_OK) {
        flush(writer);
        settle(writer);
        if (writer->fault != 0) {
            status = cannot_write(writer->target, writer->fault);
        }
    } else {
        (void)close(writer->file);
    }
    if (status != MP_OK) {
        (void)unlink(writer->fresh);
    }
    free(writer);
    return status;
}
