/* cuda_memory.c - memory of a GPU, pinned memory, copies and fills.
 *
 * Addresses are unified: the driver finds out from an address whose memory it is, so one call
 * copies between any two. Calls that wait for their bytes use a stream of their own instead of the
 * legacy default stream, which would wait for (and hold up) streams of other libraries.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include <assert.h>
#include <string.h>

mp_status mp__cuda_with_size(mp_status status, size_t size) {
    return status == MP_OK
               ? MP_OK
               : mp__fail(status, "allocation of %zu bytes: %s", size, mp_error_message());
}

mp_status mp__cuda_alloc(mp_device *self, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUdeviceptr address = 0;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.alloc(&address, size);
    MP_TRY(mp__cuda_with_size(mp__cuda_leave(device, &scope, result, "cuMemAlloc"), size));
    *out = (mp_addr)address;
    return MP_OK;
}

void mp__cuda_free(mp_device *self, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.free(addr), "cuMemFree");
        mp__cuda_exit(&scope);
    }
}

mp_status mp__cuda_alloc_pinned(mp_device *self, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    void *address = NULL;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.alloc_host(&address, size, CU_MEMHOSTALLOC_PORTABLE);
    MP_TRY(mp__cuda_with_size(mp__cuda_leave(device, &scope, result, "cuMemHostAlloc"), size));
    *out = (mp_addr)address;
    return MP_OK;
}

void mp__cuda_free_pinned(mp_device *self, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.free_host((void *)addr), "cuMemFreeHost");
        mp__cuda_exit(&scope);
    }
}

mp_status mp__cuda_memory_info(mp_device *self, size_t *free_bytes, size_t *total_bytes) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.memory_info(free_bytes, total_bytes);
    return mp__cuda_leave(device, &scope, result, "cuMemGetInfo");
}

void mp__cuda_note(mp_device *self, mp_addr addr, size_t size, bool live) {
    (void)self;
    (void)addr;
    (void)size;
    (void)live;
}

/* ---- memory of other processes ---- */

static_assert(sizeof(CUipcMemHandle) == MP_IPC_HANDLE_BYTES, "device.h promises the size");

mp_status mp__cuda_ipc_export(mp_device *self, mp_addr base, unsigned char *handle) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUipcMemHandle fresh;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.ipc_export(&fresh, base);
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuIpcGetMemHandle"));
    memcpy(handle, &fresh, sizeof fresh);
    return MP_OK;
}

mp_status mp__cuda_ipc_open(mp_device *self, const unsigned char *handle, mp_addr *out,
                            size_t *size) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUipcMemHandle theirs;
    CUdeviceptr address = 0;
    memcpy(&theirs, handle, sizeof theirs);
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.ipc_open(&address, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    const CUresult found =
        result == CUDA_SUCCESS ? mp__cu.memory_range(NULL, size, address) : CUDA_SUCCESS;
    if (found != CUDA_SUCCESS) {
        (void)mp__cu.ipc_close(address);
        return mp__cuda_leave(device, &scope, found, "cuMemGetAddressRange");
    }
    const mp_status status = mp__cuda_leave(device, &scope, result, "cuIpcOpenMemHandle");
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE ||
        result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_MAP_FAILED) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s; the handle must come from another process that still has the memory",
                       mp_error_message());
    }
    MP_TRY(status);
    *out = (mp_addr)address;
    return MP_OK;
}

mp_status mp__cuda_ipc_close(mp_device *self, mp_addr addr) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    return mp__cuda_leave(device, &scope, mp__cu.ipc_close(addr), "cuIpcCloseMemHandle");
}

/* ---- copies and fills ---- */

/* Work for a stream is part of that stream's capture; without one the call is no part of any. */
static mp_status copy_begin(const cuda_device *device, const mp_stream *stream, cuda_scope *scope) {
    return stream != NULL ? mp__cuda_enter(device, scope) : mp__cuda_enter_aside(device, scope);
}

/* Ends a copy or fill: waits for it where the caller named no stream. */
static mp_status copy_end(cuda_device *device, cuda_scope *scope, const mp_stream *stream,
                          CUresult result, const char *call) {
    if (stream == NULL && result == CUDA_SUCCESS) {
        result = mp__cu.stream_synchronize(device->copies);
    }
    return mp__cuda_leave(device, scope, result, call);
}

/* What the driver knows of an address: 0 for memory of the host that is not pinned. */
static unsigned memory_kind(mp_addr addr) {
    unsigned kind = 0;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *place = &kind;
    return mp__cu.memory_kinds(1, &which, &place, addr) == CUDA_SUCCESS ? kind
                                                                        : CU_MEMORYTYPE_UNIFIED;
}

/* A large copy between the device and memory that is not pinned; others, and those that a capture
 * refuses, are not `done`. In the device's context. */
static mp_status stage(cuda_device *device, mp_stream *stream, mp_addr target, mp_addr source,
                       size_t size, bool *done) {
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    mp_device *base = &device->base;
    if (mp__cu.capture_active(cuda_stream_of(stream), &capture) != CUDA_SUCCESS ||
        capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        return MP_OK;
    }
    const unsigned to = memory_kind(target), from = memory_kind(source);
    if (to == CU_MEMORYTYPE_DEVICE && from == 0) {
        return mp_staging_send(&device->staging, base, stream, target, (const void *)source, size,
                               done);
    }
    return to == 0 && from == CU_MEMORYTYPE_DEVICE
               ? mp_staging_fetch(&device->staging, base, stream, (void *)target, source, size,
                                  done)
               : MP_OK;
}

static mp_status copy_staged(cuda_device *device, mp_stream *stream, mp_addr target, mp_addr source,
                             size_t size, bool *done) {
    cuda_stream own = {.handle = device->copies};
    mp_stream *queue = stream != NULL ? stream : (mp_stream *)(void *)&own;
    cuda_scope scope;
    MP_TRY(copy_begin(device, stream, &scope));
    mp_status status = stage(device, queue, target, source, size, done);
    if (status == MP_OK && *done && stream == NULL) {
        status = mp__cuda_stream_synchronize(&device->base, queue);
    }
    mp__cuda_exit(&scope);
    return status;
}

mp_status mp__cuda_copy(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                        size_t size) {
    cuda_device *device = cuda_device_of(self);
    bool done = false;
    if (mp_staging_pays(size)) {
        MP_TRY(copy_staged(device, stream, target, source, size, &done));
    }
    if (done) {
        return MP_OK;
    }
    const CUstream queue = stream != NULL ? cuda_stream_of(stream) : device->copies;
    cuda_scope scope;
    MP_TRY(copy_begin(device, stream, &scope));
    const CUresult result = mp__cu.copy_async(target, source, size, queue);
    return copy_end(device, &scope, stream, result, "cuMemcpyAsync");
}

mp_status mp__cuda_fill(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                        size_t width, size_t count) {
    assert(width == 1 || width == 2 || width == 4);
    cuda_device *device = cuda_device_of(self);
    const CUstream queue = stream != NULL ? cuda_stream_of(stream) : device->copies;
    cuda_scope scope;
    MP_TRY(copy_begin(device, stream, &scope));
    const CUresult result =
        width == 1   ? mp__cu.fill8_async(target, (unsigned char)value, count, queue)
        : width == 2 ? mp__cu.fill16_async(target, (unsigned short)value, count, queue)
                     : mp__cu.fill32_async(target, value, count, queue);
    return copy_end(device, &scope, stream, result, "cuMemsetAsync");
}
