/* cuda_cache.c - the folder of compiled kernels.
 *
 * A file is a header (cache_header) and the data; its name is the key. What it holds ends up as
 * code on a GPU, so the folder must belong to this user and be closed to others, and a file must
 * match the key and the check sum in its header. Files appear under their name complete or not at
 * all: they are written under another name first and then renamed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_cache.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/option.h"
#include "device/cuda/cuda_cache_trim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_SIZE = 2 * MP_SHA256_SIZE + 32, DATA_MAX = 64 << 20 };
enum { SIZE_DEFAULT = 1 << 30, STORED_BETWEEN_TRIMS = 16 << 20 };

typedef struct cache_header {
    char magic[8];
    uint64_t size; /* of the data */
    uint8_t key[MP_SHA256_SIZE];
    uint8_t sum[MP_SHA256_SIZE]; /* of the data */
} cache_header;

static const char magic[8] = "MPKERN1";

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int folder_fd = -1;
static char folder_path[PATH_MAX];
static size_t size_limit = SIZE_DEFAULT;

/* ---- the folder ---- */

static bool folder_choose(char out[PATH_MAX]) {
    const char *mode = secure_getenv("MILLPOND_CACHE");
    const char *chosen = secure_getenv("MILLPOND_CACHE_DIR");
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    int length = 0;
    if (mode != NULL && strcmp(mode, "off") == 0) {
        return false;
    }
    if (mode != NULL && mode[0] != '\0' && strcmp(mode, "on") != 0) {
        MP_LOG(WARNING, "MILLPOND_CACHE is \"%s\", which is neither on nor off; it counts as on",
               mode);
    }
    if (chosen != NULL && chosen[0] != '\0') {
        if (chosen[0] != '/') {
            MP_LOG(WARNING,
                   "kernels are not cached: MILLPOND_CACHE_DIR is \"%s\"; give a path "
                   "from the root",
                   chosen);
            return false;
        }
        length = snprintf(out, PATH_MAX, "%s", chosen);
    } else if (cache != NULL && cache[0] == '/') {
        length = snprintf(out, PATH_MAX, "%s/millpond/kernels", cache);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(out, PATH_MAX, "%s/.cache/millpond/kernels", home);
    }
    return length > 0 && length < PATH_MAX;
}

static void folder_make(const char *path) {
    char part[PATH_MAX];
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700);
        *slash = '/';
    }
    (void)mkdir(part, 0700);
}

static void limit_read(void) {
    const char *given = secure_getenv("MILLPOND_CACHE_SIZE");
    if (given != NULL && given[0] != '\0' &&
        mp_parse_size("MILLPOND_CACHE_SIZE", given, &size_limit) != MP_OK) {
        size_limit = SIZE_DEFAULT;
        MP_LOG(WARNING, "%s; the cache of kernels keeps to 1 GiB", mp_error_message());
    }
}

static void folder_open(void) {
    struct stat entry;
    char path[PATH_MAX];
    if (!folder_choose(path)) {
        return;
    }
    limit_read();
    folder_make(path);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &entry) != 0) {
        MP_LOG(WARNING,
               "kernels are not cached: the folder %s cannot be opened (%s); set "
               "MILLPOND_CACHE_DIR to another one or MILLPOND_CACHE=off",
               path, strerror(errno));
    } else if (entry.st_uid != geteuid() || (entry.st_mode & 0077) != 0) {
        MP_LOG(WARNING,
               "kernels are not cached: the folder %s must belong to you and be closed to "
               "others (chmod 700)",
               path);
    } else {
        (void)snprintf(folder_path, sizeof folder_path, "%s", path);
        folder_fd = fd;
        return;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int folder(void) {
    (void)pthread_once(&once, folder_open);
    return folder_fd;
}

const char *mp__cuda_cache_folder(void) {
    (void)folder();
    return folder_path;
}

/* ---- files ---- */

static void name_of(const uint8_t key[MP_SHA256_SIZE], char out[NAME_SIZE]) {
    for (size_t i = 0; i < MP_SHA256_SIZE; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", key[i]);
    }
}

static bool read_sound(int fd, const uint8_t key[MP_SHA256_SIZE], cuda_blob *out) {
    struct stat entry;
    cache_header header;
    uint8_t sum[MP_SHA256_SIZE];
    if (fstat(fd, &entry) != 0 || !S_ISREG(entry.st_mode) || entry.st_uid != geteuid() ||
        !mp_file_read(fd, &header, sizeof header) ||
        memcmp(header.magic, magic, sizeof magic) != 0 ||
        memcmp(header.key, key, MP_SHA256_SIZE) != 0 || header.size == 0 ||
        header.size > DATA_MAX || (uint64_t)entry.st_size != header.size + sizeof header) {
        return false;
    }
    void *data = malloc(header.size);
    if (data == NULL || !mp_file_read(fd, data, header.size)) {
        free(data);
        return false;
    }
    mp_sha256_of(data, header.size, sum);
    if (memcmp(sum, header.sum, sizeof sum) != 0) {
        free(data);
        return false;
    }
    *out = (cuda_blob){.data = data, .size = header.size};
    return true;
}

bool mp__cuda_cache_load(const uint8_t key[MP_SHA256_SIZE], cuda_blob *out) {
    char name[NAME_SIZE];
    if (folder() < 0) {
        return false;
    }
    name_of(key, name);
    /* Non-blocking, so that a pipe put in a file's place cannot hold us up. */
    const int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT) {
            (void)unlinkat(folder_fd, name, 0);
        }
        return false;
    }
    const bool sound = read_sound(fd, key, out);
    mp__cuda_cache_touch(fd);
    (void)close(fd);
    if (!sound) {
        MP_LOG(INFO, "the cached kernel %s/%s is damaged and is rebuilt", folder_path, name);
        (void)unlinkat(folder_fd, name, 0);
    }
    return sound;
}

static bool write_file(const char *name, const cache_header *header, const void *data) {
    const int fd =
        openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    const bool written =
        mp_file_write(fd, header, sizeof *header) && mp_file_write(fd, data, header->size);
    return close(fd) == 0 && written;
}

/* When a process first stores something, and then from time to time. */
static void trim_after(size_t stored) {
    static atomic_size_t since = STORED_BETWEEN_TRIMS;
    if (atomic_fetch_add(&since, stored) < STORED_BETWEEN_TRIMS) {
        return;
    }
    atomic_store(&since, 0);
    const int gone = mp__cuda_cache_trim(folder_fd, size_limit);
    if (gone > 0) {
        MP_LOG(INFO,
               "%d kernels that were used longest ago were removed from %s, which had more than "
               "%zu bytes (MILLPOND_CACHE_SIZE)",
               gone, folder_path, size_limit);
    }
}

void mp__cuda_cache_store(const uint8_t key[MP_SHA256_SIZE], const void *data, size_t size) {
    static atomic_uint counter; /* keeps the threads of this process apart */
    char name[NAME_SIZE];
    char fresh[NAME_SIZE];
    cache_header header = {.size = size};
    if (folder() < 0 || size == 0 || size > DATA_MAX) {
        return;
    }
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.key, key, MP_SHA256_SIZE);
    mp_sha256_of(data, size, header.sum);
    name_of(key, name);
    (void)snprintf(fresh, sizeof fresh, "new-%.16s-%ld-%u", name, (long)getpid(),
                   atomic_fetch_add(&counter, 1));
    if (!write_file(fresh, &header, data) || renameat(folder_fd, fresh, folder_fd, name) != 0) {
        MP_LOG(INFO, "a kernel could not be cached in %s: %s", folder_path, strerror(errno));
        (void)unlinkat(folder_fd, fresh, 0);
        return;
    }
    trim_after(size);
}
