/* cuda_cache_trim.c - see cuda_cache_trim.h.
 *
 * When a file was used is the time of its last change, since many file systems do not say when one
 * was read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_cache_trim.h"

#include "base/growing.h"
#include "base/sha256.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S, NAME_LENGTH = 2 * MP_SHA256_SIZE };

typedef struct found_file {
    char name[NAME_LENGTH + 1];
    uint64_t size;
    struct timespec used;
} found_file;

typedef struct found_files {
    found_file *list; /* owned */
    size_t count, capacity;
    uint64_t size; /* together */
} found_files;

static bool is_fresh(const char *name) {
    return strncmp(name, "new-", 4) == 0;
}

static bool is_key(const char *name) {
    return strlen(name) == NAME_LENGTH && strspn(name, "0123456789abcdef") == NAME_LENGTH;
}

/* The folder may be one that the user has other files in: those are left alone. */
static void add(found_files *files, int folder, const char *name, time_t now) {
    struct stat entry;
    if ((!is_fresh(name) && !is_key(name)) ||
        fstatat(folder, name, &entry, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(entry.st_mode)) {
        return;
    }
    if (is_fresh(name)) {
        if (now - entry.st_mtim.tv_sec > HOUR_S) {
            (void)unlinkat(folder, name, 0);
        }
        return;
    }
    if (mp_grow(&files->list, files->count + 1, &files->capacity, sizeof *files->list)) {
        found_file *file = &files->list[files->count++];
        memcpy(file->name, name, sizeof file->name);
        file->size = (uint64_t)entry.st_size;
        file->used = entry.st_mtim;
        files->size += file->size;
    }
}

static int by_use(const void *left, const void *right) {
    const struct timespec a = ((const found_file *)left)->used;
    const struct timespec b = ((const found_file *)right)->used;
    if (a.tv_sec != b.tv_sec) {
        return a.tv_sec < b.tv_sec ? -1 : 1;
    }
    return (a.tv_nsec > b.tv_nsec) - (a.tv_nsec < b.tv_nsec);
}

int mp__cuda_cache_trim(int folder, uint64_t limit) {
    found_files files = {0};
    int gone = 0;
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (entries == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return 0;
    }
    const time_t now = time(NULL);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        add(&files, folder, entry->d_name, now);
    }
    (void)closedir(entries);
    if (files.size > limit) {
        qsort(files.list, files.count, sizeof *files.list, by_use);
        for (size_t i = 0; i < files.count && files.size > limit - limit / 4; i++) {
            gone += unlinkat(folder, files.list[i].name, 0) == 0;
            files.size -= files.list[i].size;
        }
    }
    free(files.list);
    return gone;
}

void mp__cuda_cache_touch(int fd) {
    struct stat entry;
    if (fstat(fd, &entry) == 0 && time(NULL) - entry.st_mtim.tv_sec > DAY_S) {
        (void)futimens(fd, NULL);
    }
}
