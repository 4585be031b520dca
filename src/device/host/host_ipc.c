/* host_ipc.c - memory that other processes may open.
 *
 * A device that may share has one file in the system's memory, without a name. Each allocation gets
 * fresh pages at its end, and a page in front that says that it lives; what is freed becomes a
 * hole, so that the file only grows in its addresses. Another process of the user reaches the file
 * through /proc, as the handle says.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_PAGE = 4096 }; /* a multiple of every page size would do; checked when it is mapped */

static const uint64_t mark_alive = UINT64_C(0x4d696c6c706f6e64);

typedef struct ipc_handle { /* what the bytes of a handle are */
    uint64_t mark;
    int32_t process, file;
    uint64_t inode;  /* of the file, to know it from one that has its number now */
    uint64_t offset; /* where the allocation begins */
    uint64_t size;
} ipc_handle;

static_assert(sizeof(ipc_handle) <= MP_IPC_HANDLE_BYTES, "a handle has room for it");

typedef struct file_header { /* the page in front of an allocation */
    uint64_t mark, size;
} file_header;

static uint64_t round_up(uint64_t size) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t unit = MP_MAX(page, FILE_PAGE);
    return MP_ALIGN_UP(size, unit);
}

/* ---- the file of this process ---- */

/* Takes `size` bytes at the end of the file. */
static mp_status extend(host_device *host, uint64_t size, uint64_t *offset) {
    (void)pthread_mutex_lock(&host->memory_lock);
    if (host->file < 0) {
        host->file = memfd_create("millpond", MFD_CLOEXEC);
    }
    const bool done =
        host->file >= 0 && ftruncate(host->file, (off_t)(host->file_size + size)) == 0;
    if (done) {
        *offset = host->file_size;
        host->file_size += size;
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    return done ? MP_OK
                : MP_FAIL(OUT_OF_MEMORY,
                          "the machine cannot provide %" PRIu64 " bytes that can be shared: %s",
                          size, strerror(errno));
}

static void make_hole(const host_device *host, uint64_t offset, uint64_t size) {
    (void)fallocate(host->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)size);
}

mp_status mp__host_file_alloc(host_device *host, size_t size, void **out, uint64_t *offset) {
    const uint64_t head = round_up(1);
    const uint64_t bytes = round_up(size);
    const file_header header = {.mark = mark_alive, .size = bytes};
    uint64_t place = 0;
    MP_TRY(extend(host, head + bytes, &place));
    void *memory =
        pwrite(host->file, &header, sizeof header, (off_t)place) == (ssize_t)sizeof header
            ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, host->file,
                   (off_t)(place + head))
            : MAP_FAILED;
    if (memory == MAP_FAILED) {
        const int fault = errno;
        make_hole(host, place, head);
        return MP_FAIL(OUT_OF_MEMORY, "the machine cannot provide %zu bytes that can be shared: %s",
                       size, strerror(fault));
    }
    *out = memory;
    *offset = place + head;
    return MP_OK;
}

void mp__host_file_free(host_device *host, void *memory, size_t size, uint64_t offset) {
    const uint64_t head = round_up(1);
    const uint64_t bytes = round_up(size);
    make_hole(host, offset - head, head + bytes);
    (void)munmap(memory, bytes);
}

/* ---- handles ---- */

static mp_status find_shared(host_device *host, mp_addr base, host_range *out) {
    (void)pthread_mutex_lock(&host->memory_lock);
    const host_range *range = mp__host_range_find(&host->ranges, base);
    const bool found = range != NULL && range->begin == base && range->kind == HOST_RANGE_DEVICE;
    if (found) {
        *out = *range;
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (!found) {
        return MP_FAIL(INVALID_ARGUMENT, "ipc_export of 0x%zx, where no allocation begins",
                       (size_t)base);
    }
    if (out->offset == 0) {
        return MP_FAIL(UNSUPPORTED,
                       "the %zu bytes at 0x%zx cannot be shared: an emulated device shares "
                       "allocations of at least %d bytes where MILLPOND_HOST_IPC=1 is set before "
                       "its first use",
                       out->size, (size_t)base, FILE_PAGE);
    }
    return MP_OK;
}

mp_status mp__host_ipc_export(mp_device *self, mp_addr base, unsigned char *handle) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "ipc_export"));
    host_range range = {0};
    struct stat about;
    MP_TRY(find_shared(host, base, &range));
    if (fstat(host->file, &about) != 0) {
        return MP_FAIL(DEVICE, "the shared memory of emulated device %d has no number: %s",
                       host->base.ordinal, strerror(errno));
    }
    const ipc_handle fresh = {.mark = mark_alive,
                              .process = (int32_t)getpid(),
                              .file = (int32_t)host->file,
                              .inode = (uint64_t)about.st_ino,
                              .offset = range.offset,
                              .size = range.size};
    memset(handle, 0, MP_IPC_HANDLE_BYTES);
    memcpy(handle, &fresh, sizeof fresh);
    return MP_OK;
}

/* Whether the file is the handle's, and the allocation still lives. */
static bool is_alive(int file, const ipc_handle *handle) {
    struct stat about;
    file_header header = {0};
    return fstat(file, &about) == 0 && (uint64_t)about.st_ino == handle->inode &&
           handle->offset >= round_up(1) &&
           pread(file, &header, sizeof header, (off_t)(handle->offset - round_up(1))) ==
               (ssize_t)sizeof header &&
           header.mark == mark_alive && handle->size <= header.size;
}

static mp_status map_theirs(const ipc_handle *handle, void **out) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return MP_FAIL(INVALID_ARGUMENT, "the handle's process %d cannot be reached: %s",
                       handle->process, strerror(errno));
    }
    const bool alive = is_alive(file, handle);
    void *memory = alive ? mmap(NULL, handle->size, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                                (off_t)handle->offset)
                         : MAP_FAILED;
    const int fault = errno;
    (void)close(file);
    if (!alive) {
        return MP_FAIL(INVALID_ARGUMENT, "the handle's memory has been freed by process %d",
                       handle->process);
    }
    if (memory == MAP_FAILED) {
        return MP_FAIL(OUT_OF_MEMORY, "no addresses for %" PRIu64 " bytes of process %d: %s",
                       handle->size, handle->process, strerror(fault));
    }
    *out = memory;
    return MP_OK;
}

mp_status mp__host_ipc_open(mp_device *self, const unsigned char *handle, mp_addr *out,
                            size_t *size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "ipc_open"));
    ipc_handle theirs;
    memcpy(&theirs, handle, sizeof theirs);
    if (theirs.mark != mark_alive || theirs.size == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "the handle is not of an emulated device");
    }
    if (theirs.process == (int32_t)getpid()) {
        return MP_FAIL(INVALID_ARGUMENT, "the handle is of this process; use the address itself");
    }
    void *memory = NULL;
    MP_TRY(map_theirs(&theirs, &memory));
    const host_range range = {
        .begin = (mp_addr)memory, .size = theirs.size, .kind = HOST_RANGE_OPENED};
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = mp__host_range_insert(&host->ranges, range);
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (status != MP_OK) {
        (void)munmap(memory, theirs.size);
        return status;
    }
    *out = range.begin;
    *size = range.size;
    return MP_OK;
}

mp_status mp__host_ipc_close(mp_device *self, mp_addr addr) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "ipc_close"));
    (void)pthread_mutex_lock(&host->memory_lock);
    const host_range *range = mp__host_range_find(&host->ranges, addr);
    const bool opened = range != NULL && range->begin == addr && range->kind == HOST_RANGE_OPENED;
    const size_t size = opened ? range->size : 0;
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (!opened) {
        return MP_FAIL(INVALID_ARGUMENT, "ipc_close of 0x%zx, which did not come from ipc_open",
                       (size_t)addr);
    }
    mp__host_check_unused(host, addr, size, "ipc_close");
    (void)pthread_mutex_lock(&host->memory_lock);
    (void)mp__host_range_cut(&host->ranges, addr, size);
    (void)pthread_mutex_unlock(&host->memory_lock);
    (void)munmap((void *)addr, size);
    return MP_OK;
}
