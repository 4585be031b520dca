/* context_file.c - see context_file.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/context/context_file.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MOST = 255 };

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a file of a compiled model");
}

/* A model that somebody else has written names files of its own folder only. */
static bool is_plain(const char *name) {
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strlen(name) <= NAME_MOST;
}

mp_status mp__context_file_path(const char *model, const char *name, char **out) {
    const char *slash = strrchr(model, '/');
    if (!is_plain(name)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "the compiled model names the file '%.80s', which is not the name of a file "
                       "in its folder",
                       name);
    }
    if (model[0] == '\0') {
        return MP_FAIL(INVALID_ARGUMENT,
                       "the file '%.80s' belongs beside the compiled model, and the model has no "
                       "path: set ep.context_file_path, or compile with ep.context_embed_mode=1",
                       name);
    }
    const int folder = slash != NULL ? (int)(slash - model) + 1 : 0;
    return asprintf(out, "%.*s%s", folder, model, name) >= 0 ? MP_OK : no_memory();
}

/* ---- writing ---- */

static mp_status write_fresh(const char *path, const char *fresh, const void *bytes, size_t size) {
    const int file = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool done = file >= 0 && mp_file_write(file, bytes, size);
    int fault = errno;
    if (file >= 0 && close(file) != 0 && done) {
        done = false;
        fault = errno;
    }
    if (done && rename(fresh, path) != 0) {
        done = false;
        fault = errno;
    }
    if (!done && file >= 0) {
        (void)unlink(fresh);
    }
    return done ? MP_OK
                : MP_FAIL(INVALID_ARGUMENT, "cannot write %zu bytes of a compiled model to %s: %s",
                          size, path, strerror(fault));
}

mp_status mp__context_file_write(const char *path, const void *bytes, size_t size) {
    char *fresh = NULL;
    if (asprintf(&fresh, "%s.%ld.new", path, (long)getpid()) < 0) {
        return no_memory();
    }
    const mp_status status = write_fresh(path, fresh, bytes, size);
    free(fresh);
    return status;
}

/* ---- reading ---- */

static mp_status read_open(int file, const char *path, size_t most, unsigned char **out,
                           size_t *size) {
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        return MP_FAIL(INVALID_ARGUMENT, "%s, of a compiled model, is no regular file", path);
    }
    if (about.st_size < 0 || (uint64_t)about.st_size > most) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s, of a compiled model, has %lld bytes, and %zu are the "
                       "most",
                       path, (long long)about.st_size, most);
    }
    *size = (size_t)about.st_size;
    *out = malloc(*size + 1);
    if (*out == NULL) {
        return no_memory();
    }
    if (!mp_file_read(file, *out, *size)) {
        free(*out);
        return MP_FAIL(INVALID_ARGUMENT, "cannot read %s, of a compiled model: %s", path,
                       errno != 0 ? strerror(errno) : "it has become shorter");
    }
    return MP_OK;
}

mp_status mp__context_file_read(const char *path, size_t most, unsigned char **out, size_t *size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "cannot open %s, which a compiled model names: %s; the file belongs beside "
                       "the model",
                       path, strerror(errno));
    }
    const mp_status status = read_open(file, path, most, out, size);
    (void)close(file);
    return status;
}
