/* cuda_ready.c - see cuda_ready.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_ready.h"

#include "base/dynlib.h"
#include "base/log.h"
#include "device/cuda/cuda_jit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 32, ENTRIES_MAX = 1 << 20, CODE_MAX = 64 << 20 };

/* Opened when its architecture is first asked for, and kept. */
typedef struct ready_file {
    int arch;
    int fd; /* -1: there is none that is sound */
    uint64_t size;
    uint32_t count;
    ready_entry *entries;
    char path[PATH_MAX];
} ready_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ready_file *files[FILES_MAX];
static int file_count;

/* ---- files ---- */

static bool path_make(char out[PATH_MAX], const char *folder, const char *below, int arch) {
    return snprintf(out, PATH_MAX, "%s%s/sm_%d.kernels", folder, below, arch) < PATH_MAX;
}

/* The path of the file, or of where it would be. */
static bool path_of(int arch, char out[PATH_MAX], uid_t *owner) {
    const char *named = secure_getenv("MILLPOND_KERNELS");
    char own[PATH_MAX];
    *owner = geteuid();
    if (named != NULL && named[0] == '/') {
        return path_make(out, named, "", arch);
    }
    if (named != NULL && named[0] != '\0') {
        if (strcmp(named, "off") != 0) {
            MP_LOG(WARNING,
                   "MILLPOND_KERNELS is \"%s\", which is neither off nor a path from the root; "
                   "kernels are compiled when they are needed",
                   named);
        }
        return false;
    }
    if (!mp_dynlib_own_folder(own, sizeof own, owner)) {
        return false;
    }
    return (path_make(out, own, "/kernels", arch) && access(out, F_OK) == 0) ||
           path_make(out, own, "/millpond/kernels", arch);
}

static bool read_at(int fd, void *data, size_t size, uint64_t offset) {
    char *at = data;
    while (size > 0) {
        const ssize_t got = pread(fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        at += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static bool read_entries(ready_file *file) {
    ready_header header;
    uint8_t sum[MP_SHA256_SIZE];
    if (!read_at(file->fd, &header, sizeof header, 0) ||
        memcmp(header.magic, READY_MAGIC, sizeof header.magic) != 0 ||
        header.arch != (uint32_t)file->arch || header.count > ENTRIES_MAX) {
        return false;
    }
    const size_t size = header.count * sizeof *file->entries;
    file->entries = malloc(size + 1);
    if (file->entries == NULL || !read_at(file->fd, file->entries, size, sizeof header)) {
        return false;
    }
    mp_sha256_of(file->entries, size, sum);
    file->count = header.count;
    return memcmp(sum, header.sum, sizeof sum) == 0;
}

static void file_open(ready_file *file) {
    struct stat entry;
    uid_t owner = 0;
    if (!path_of(file->arch, file->path, &owner)) {
        return;
    }
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        return;
    }
    const char *fault = NULL;
    if (fstat(file->fd, &entry) != 0 || !mp_dynlib_trusts(file->path, owner)) {
        fault = "belongs to another user, or others may write it";
    } else {
        file->size = (uint64_t)entry.st_size;
        fault = read_entries(file) ? NULL : "is damaged, or of another version";
    }
    if (fault != NULL) {
        MP_LOG(WARNING, "%s %s; kernels are compiled when they are needed", file->path, fault);
        (void)close(file->fd);
        free(file->entries);
        file->entries = NULL;
        file->fd = -1;
        file->count = 0;
    }
}

/* With the lock held. NULL without memory, or after more architectures than there are. */
static const ready_file *file_of(int arch) {
    for (int i = 0; i < file_count; i++) {
        if (files[i]->arch == arch) {
            return files[i];
        }
    }
    ready_file *fresh = file_count < FILES_MAX ? calloc(1, sizeof *fresh) : NULL;
    if (fresh != NULL) {
        fresh->arch = arch;
        fresh->fd = -1;
        file_open(fresh);
        files[file_count++] = fresh;
    }
    return fresh;
}

static const ready_file *file_for(int arch) {
    (void)pthread_mutex_lock(&lock);
    const ready_file *file = file_of(arch);
    (void)pthread_mutex_unlock(&lock);
    return file != NULL && file->fd >= 0 ? file : NULL;
}

/* ---- kernels ---- */

static int compare(const void *key, const void *entry) {
    return memcmp(key, ((const ready_entry *)entry)->key, MP_SHA256_SIZE);
}

static bool read_code(const ready_file *file, const ready_entry *entry, cuda_blob *out) {
    uint8_t sum[MP_SHA256_SIZE];
    if (entry->size == 0 || entry->size > CODE_MAX || entry->offset > file->size ||
        entry->size > file->size - entry->offset) {
        return false;
    }
    void *data = malloc(entry->size);
    if (data == NULL || !read_at(file->fd, data, entry->size, entry->offset)) {
        free(data);
        return false;
    }
    mp_sha256_of(data, entry->size, sum);
    if (memcmp(sum, entry->sum, sizeof sum) != 0) {
        free(data);
        return false;
    }
    *out = (cuda_blob){.data = data, .size = entry->size};
    return true;
}

static bool load(const ready_file *file, const mp_kernel_image *image, cuda_blob *out) {
    uint8_t key[MP_SHA256_SIZE];
    if (mp__cuda_ready_key(image, file->arch, key) != MP_OK) {
        return false;
    }
    const ready_entry *entry =
        bsearch(key, file->entries, file->count, sizeof *file->entries, compare);
    if (entry == NULL) {
        return false;
    }
    if (!read_code(file, entry, out)) {
        MP_LOG(WARNING, "kernel %s in %s is damaged and is compiled instead; reinstall Millpond",
               image->name, file->path);
        return false;
    }
    return true;
}

bool mp__cuda_ready_load(const mp_kernel_image *image, int arch, cuda_blob *out) {
    for (int a = arch; a >= arch / 10 * 10; a--) {
        const ready_file *file = file_for(a);
        if (file != NULL && load(file, image, out)) {
            return true;
        }
    }
    return false;
}
