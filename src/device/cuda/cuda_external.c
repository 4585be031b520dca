/* cuda_external.c - memory and semaphores of other APIs, by file descriptors.
 *
 * The driver takes a descriptor over when it has imported it, so it is given one of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mp_import {
    CUexternalMemory memory;
    CUdeviceptr addr;
};

static CUexternalSemaphore semaphore_of(mp_semaphore *semaphore) {
    return (CUexternalSemaphore)(void *)semaphore;
}

static mp_status duplicate(int fd, int *out) {
    *out = fd >= 0 ? dup(fd) : -1;
    return *out >= 0 ? MP_OK
                     : MP_FAIL(INVALID_ARGUMENT, "%d is not an open file descriptor%s%s", fd,
                               fd >= 0 ? ": " : "", fd >= 0 ? strerror(errno) : "");
}

/* What the driver says of a descriptor that is not what it is said to be differs by version. */
static mp_status refuse(const cuda_device *device, CUresult result, const char *call, int fd,
                        const char *what) {
    (void)mp__cuda_fail(device, result, call);
    return MP_FAIL(INVALID_ARGUMENT, "file descriptor %d cannot be imported as %s: %s", fd, what,
                   mp_error_message());
}

/* ---- memory ---- */

/* In the device's context. */
static CUresult import_and_map(int own, size_t size, mp_import *import) {
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC about = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle = {.fd = own}, .size = size};
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {.offset = 0, .size = size};
    CUresult result = mp__cu.import_memory(&import->memory, &about);
    if (result != CUDA_SUCCESS) {
        (void)close(own);
        return result;
    }
    result = mp__cu.import_map(&import->addr, import->memory, &all);
    if (result != CUDA_SUCCESS) {
        (void)mp__cu.import_destroy(import->memory);
    }
    return result;
}

mp_status mp__cuda_import_open(mp_device *self, int fd, size_t size, mp_import **out,
                               mp_addr *addr) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    int own = -1;
    MP_TRY(duplicate(fd, &own));
    mp_import *fresh = calloc(1, sizeof *fresh);
    mp_status status = fresh != NULL
                           ? mp__cuda_enter_aside(device, &scope)
                           : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to import memory");
    if (status != MP_OK) {
        (void)close(own);
        free(fresh);
        return status;
    }
    const CUresult result = import_and_map(own, size, fresh);
    mp__cuda_exit(&scope);
    if (result != CUDA_SUCCESS) {
        free(fresh);
        return refuse(device, result, "cuImportExternalMemory", fd, "exported memory");
    }
    *out = fresh;
    *addr = (mp_addr)fresh->addr;
    return MP_OK;
}

void mp__cuda_import_close(mp_device *self, mp_import *import) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        CUresult result = mp__cu.free(import->addr);
        if (result == CUDA_SUCCESS) {
            result = mp__cu.import_destroy(import->memory);
        }
        mp__cuda_exit(&scope);
        if (result != CUDA_SUCCESS) {
            mp__cuda_warn(device, result, "cuDestroyExternalMemory");
        }
    }
    free(import);
}

/* ---- semaphores ---- */

mp_status mp__cuda_semaphore_open(mp_device *self, int fd, mp_semaphore **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUexternalSemaphore fresh = NULL;
    int own = -1;
    MP_TRY(duplicate(fd, &own));
    const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC about = {
        .type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD, .handle = {.fd = own}};
    const mp_status status = mp__cuda_enter_aside(device, &scope);
    if (status != MP_OK) {
        (void)close(own);
        return status;
    }
    const CUresult result = mp__cu.semaphore_import(&fresh, &about);
    mp__cuda_exit(&scope);
    if (result != CUDA_SUCCESS) {
        (void)close(own);
        return refuse(device, result, "cuImportExternalSemaphore", fd,
                      "an exported timeline semaphore");
    }
    *out = (mp_semaphore *)(void *)fresh;
    return MP_OK;
}

void mp__cuda_semaphore_close(mp_device *self, mp_semaphore *semaphore) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) != MP_OK) {
        return;
    }
    const CUresult result = mp__cu.semaphore_destroy(semaphore_of(semaphore));
    mp__cuda_exit(&scope);
    if (result != CUDA_SUCCESS) {
        mp__cuda_warn(device, result, "cuDestroyExternalSemaphore");
    }
}

static mp_status check_uncaptured(mp_device *self, mp_stream *stream, const char *call) {
    bool captured = false;
    MP_TRY(self->ops->capture_active(self, stream, &captured));
    return captured ? MP_FAIL(INVALID_ARGUMENT, "%s on a stream that is being captured", call)
                    : MP_OK;
}

mp_status mp__cuda_semaphore_signal(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                    uint64_t value) {
    cuda_device *device = cuda_device_of(self);
    const CUexternalSemaphore handle = semaphore_of(semaphore);
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS to = {.params = {.fence = {.value = value}}};
    cuda_scope scope;
    MP_TRY(check_uncaptured(self, stream, "semaphore_signal"));
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.semaphore_signal(&handle, &to, 1, cuda_stream_of(stream));
    return mp__cuda_leave(device, &scope, result, "cuSignalExternalSemaphoresAsync");
}

mp_status mp__cuda_semaphore_wait(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                  uint64_t value) {
    cuda_device *device = cuda_device_of(self);
    const CUexternalSemaphore handle = semaphore_of(semaphore);
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS until = {.params = {.fence = {.value = value}}};
    cuda_scope scope;
    MP_TRY(check_uncaptured(self, stream, "semaphore_wait"));
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.semaphore_wait(&handle, &until, 1, cuda_stream_of(stream));
    return mp__cuda_leave(device, &scope, result, "cuWaitExternalSemaphoresAsync");
}
