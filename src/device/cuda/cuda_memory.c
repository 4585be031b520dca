/* cuda_memory.c - memory of a GPU, pinned memory, copies and fills.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Addresses are unified: the driver finds out from an address whose memory it is, so one call
 * copies between any two. Calls that wait for their bytes use a stream of their own instead of the
 * legacy default stream, which would wait for (and hold up) streams of other libraries. */
#include "device/cuda/cuda_private.h"

#include <assert.h>

/* Adds the size to the sentence of a failed allocation. */
static mp_status with_size(mp_status status, size_t size) {
    return status == MP_OK
               ? MP_OK
               : mp__fail(status, "allocation of %zu bytes: %s", size, mp_error_message());
}

mp_status mp__cuda_alloc(mp_device *self, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUdeviceptr address = 0;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.alloc(&address, size);
    MP_TRY(with_size(mp__cuda_leave(device, &scope, result, "cuMemAlloc"), size));
    *out = (mp_addr)address;
    return MP_OK;
}

void mp__cuda_free(mp_device *self, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.free(addr), "cuMemFree");
        mp__cuda_exit(&scope);
    }
}

mp_status mp__cuda_alloc_pinned(mp_device *self, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    void *address = NULL;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.alloc_host(&address, size, CU_MEMHOSTALLOC_PORTABLE);
    MP_TRY(with_size(mp__cuda_leave(device, &scope, result, "cuMemHostAlloc"), size));
    *out = (mp_addr)address;
    return MP_OK;
}

void mp__cuda_free_pinned(mp_device *self, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.free_host((void *)addr), "cuMemFreeHost");
        mp__cuda_exit(&scope);
    }
}

mp_status mp__cuda_alloc_async(mp_device *self, mp_stream *stream, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    if (device->mempool == NULL) {
        return MP_FAIL(
            UNSUPPORTED,
            "CUDA device %d (%s) has no stream-ordered memory pool; allocate without one",
            self->ordinal, self->info.name);
    }
    cuda_scope scope;
    CUdeviceptr address = 0;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result =
        mp__cu.alloc_from_pool(&address, size, device->mempool, cuda_stream_of(stream));
    MP_TRY(with_size(mp__cuda_leave(device, &scope, result, "cuMemAllocFromPoolAsync"), size));
    *out = (mp_addr)address;
    return MP_OK;
}

mp_status mp__cuda_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.free_async(addr, cuda_stream_of(stream));
    return mp__cuda_leave(device, &scope, result, "cuMemFreeAsync");
}

mp_status mp__cuda_memory_info(mp_device *self, size_t *free_bytes, size_t *total_bytes) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.memory_info(free_bytes, total_bytes);
    return mp__cuda_leave(device, &scope, result, "cuMemGetInfo");
}

/* ---- copies and fills ---- */

/* Ends a copy or fill: waits for it where the caller named no stream. */
static mp_status finish(cuda_device *device, const cuda_scope *scope, const mp_stream *stream,
                        CUresult result, const char *call) {
    if (stream == NULL && result == CUDA_SUCCESS) {
        result = mp__cu.stream_synchronize(device->copies);
    }
    return mp__cuda_leave(device, scope, result, call);
}

mp_status mp__cuda_copy(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                        size_t size) {
    cuda_device *device = cuda_device_of(self);
    const CUstream queue = stream != NULL ? cuda_stream_of(stream) : device->copies;
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.copy_async(target, source, size, queue);
    return finish(device, &scope, stream, result, "cuMemcpyAsync");
}

mp_status mp__cuda_fill(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                        size_t width, size_t count) {
    assert(width == 1 || width == 2 || width == 4);
    cuda_device *device = cuda_device_of(self);
    const CUstream queue = stream != NULL ? cuda_stream_of(stream) : device->copies;
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result =
        width == 1   ? mp__cu.fill8_async(target, (unsigned char)value, count, queue)
        : width == 2 ? mp__cu.fill16_async(target, (unsigned short)value, count, queue)
                     : mp__cu.fill32_async(target, value, count, queue);
    return finish(device, &scope, stream, result, "cuMemsetAsync");
}
