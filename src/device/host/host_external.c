/* host_external.c - memory and semaphores of other APIs, which the emulated device takes from
 * files.
 *
 * What stands for exported memory is a file that can be mapped (memfd_create); what stands for a
 * timeline semaphore is one whose first eight bytes count. A file that shrinks would end the
 * process that has it mapped, so each must be sealed against that, or is sealed here.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EAGER_WAIT_MS = 10000 }; /* an eager device waits where the work is queued */

struct mp_import {
    mp_addr addr;
    size_t size;
};

/* ---- files ---- */

static mp_status check_file(int fd, size_t size) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%d is not an open file descriptor", fd);
    }
    if (!S_ISREG(about.st_mode)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "file descriptor %d is not memory; the emulated device takes memory of "
                       "memfd_create",
                       fd);
    }
    if (size == 0 || about.st_size < 0 || size > (uint64_t)about.st_size) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%zu bytes were requested of file descriptor %d, which has %lld", size, fd,
                       (long long)about.st_size);
    }
    return MP_OK;
}

static mp_status seal(int fd) {
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 &&
        ((seals & F_SEAL_SHRINK) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)) {
        return MP_OK;
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   "file descriptor %d could shrink while it is used; make it with "
                   "memfd_create(..., MFD_ALLOW_SEALING)",
                   fd);
}

static mp_status map(int fd, size_t size, void **out) {
    MP_TRY(check_file(fd, size));
    MP_TRY(seal(fd));
    MP_TRY(check_file(fd, size)); /* it can no longer change */
    *out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*out == MAP_FAILED) {
        return MP_FAIL(INVALID_ARGUMENT, "file descriptor %d cannot be mapped: %s", fd,
                       strerror(errno));
    }
    return MP_OK;
}

/* ---- memory ---- */

mp_status mp__host_import_open(mp_device *self, int fd, size_t size, mp_import **out,
                               mp_addr *addr) {
    host_device *host = mp__host_from(self);
    void *memory = NULL;
    MP_TRY(mp__host_call(host, "import_open"));
    mp_import *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for the record of imported memory");
    }
    mp_status status = map(fd, size, &memory);
    if (status == MP_OK) {
        *fresh = (mp_import){.addr = (mp_addr)memory, .size = size};
        const host_range range = {.begin = fresh->addr, .size = size, .kind = HOST_RANGE_OPENED};
        (void)pthread_mutex_lock(&host->memory_lock);
        status = mp__host_range_insert(&host->ranges, range);
        (void)pthread_mutex_unlock(&host->memory_lock);
        if (status != MP_OK) {
            (void)munmap(memory, size);
        }
    }
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    *out = fresh;
    *addr = fresh->addr;
    return MP_OK;
}

void mp__host_import_close(mp_device *self, mp_import *import) {
    host_device *host = mp__host_from(self);
    mp__host_check_unused(host, import->addr, import->size, "import_close");
    if (host->config.mode != MP_HOST_EAGER) {
        mp__host_drain(host, NULL); /* as the driver does */
    }
    (void)pthread_mutex_lock(&host->memory_lock);
    (void)mp__host_range_cut(&host->dead, import->addr, import->size);
    (void)mp__host_range_cut(&host->ranges, import->addr, import->size);
    (void)pthread_mutex_unlock(&host->memory_lock);
    (void)munmap((void *)import->addr, import->size);
    free(import);
}

/* ---- semaphores ---- */

static void unmap_semaphore(host_object *self) {
    mp_semaphore *semaphore = (mp_semaphore *)(void *)self;
    (void)munmap((void *)(uintptr_t)semaphore->count, sizeof *semaphore->count);
}

mp_status mp__host_semaphore_open(mp_device *self, int fd, mp_semaphore **out) {
    host_device *host = mp__host_from(self);
    mp_semaphore *fresh = NULL;
    void *count = NULL;
    MP_TRY(mp__host_call(host, "semaphore_open"));
    MP_TRY(map(fd, sizeof *fresh->count, &count));
    const mp_status status =
        mp__host_object_create(host, HOST_SEMAPHORE, sizeof *fresh, (void *)&fresh);
    if (status != MP_OK) {
        (void)munmap(count, sizeof *fresh->count);
        return status;
    }
    fresh->object.clear = unmap_semaphore;
    fresh->count = count;
    *out = fresh;
    return MP_OK;
}

void mp__host_semaphore_close(mp_device *self, mp_semaphore *semaphore) {
    mp__host_object_destroy(mp__host_from(self), &semaphore->object);
}

static host_object *counted_semaphore(const host_item *item) {
    return &item->count.semaphore->object;
}

static bool is_reached(const host_item *item) {
    return atomic_load(item->count.semaphore->count) >= item->count.value;
}

static bool run_signal(host_device *host, host_queue *queue, host_item *item) {
    (void)queue;
    _Atomic(uint64_t) *count = item->count.semaphore->count;
    const uint64_t before = atomic_load(count);
    if (before < item->count.value) {
        atomic_store(count, item->count.value);
        return true;
    }
    mp__host_breach(host,
                    "a semaphore that counts %llu was signalled with %llu; a timeline only goes up",
                    (unsigned long long)before, (unsigned long long)item->count.value);
    return true;
}

static const host_item_kind signal_kind = {.run = run_signal, .object = counted_semaphore};

static bool run_await(host_device *host, host_queue *queue, host_item *item) {
    (void)host;
    (void)queue;
    (void)item;
    return true; /* that it is its turn is all */
}

static const host_item_kind await_kind = {
    .run = run_await, .is_ready = is_reached, .object = counted_semaphore, .is_foreign = true};

static mp_status check_call(host_device *host, const mp_stream *stream, const char *call) {
    MP_TRY(mp__host_call(host, call));
    return stream->queue->capture == NULL
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s on stream %u, which is being captured", call,
                         stream->queue->number);
}

mp_status mp__host_semaphore_signal(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                    uint64_t value) {
    host_device *host = mp__host_from(self);
    host_item item = {.kind = &signal_kind, .count = {.semaphore = semaphore, .value = value}};
    MP_TRY(check_call(host, stream, "semaphore_signal"));
    return mp__host_enqueue(host, stream->queue, &item);
}

static mp_status wait_here(const host_item *item) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int ms = 0; !is_reached(item); ms++) {
        if (ms >= EAGER_WAIT_MS) {
            return MP_FAIL(BUSY,
                           "nobody has signalled a semaphore with %llu for %d seconds; an eager "
                           "emulated device waits in the call (MILLPOND_HOST=threaded does not)",
                           (unsigned long long)item->count.value, EAGER_WAIT_MS / 1000);
        }
        (void)nanosleep(&moment, NULL);
    }
    return MP_OK;
}

mp_status mp__host_semaphore_wait(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                  uint64_t value) {
    host_device *host = mp__host_from(self);
    host_item item = {.kind = &await_kind, .count = {.semaphore = semaphore, .value = value}};
    MP_TRY(check_call(host, stream, "semaphore_wait"));
    if (host->config.mode == MP_HOST_EAGER) {
        return wait_here(&item);
    }
    return mp__host_enqueue(host, stream->queue, &item);
}
