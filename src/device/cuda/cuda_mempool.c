/* cuda_mempool.c - the driver's stream-ordered memory pools.
 *
 * Each mempool is a pool of our own, so that its figures and its threshold are nobody else's.
 * Memory that a captured stream asks for would belong to the graph, and what it frees must be the
 * graph's: both are refused before the driver sees them, since its refusal would break the capture.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include <stdlib.h>

static cuda_mempool *mempool_from(mp_mempool *mempool) {
    return (cuda_mempool *)(void *)mempool;
}

/* ---- access for other devices ---- */

static CUresult grant(const cuda_mempool *mempool, uint64_t readers) {
    CUmemAccessDesc access[CUDA_DEVICES_MAX];
    size_t count = 0;
    for (int ordinal = 0; ordinal < CUDA_DEVICES_MAX; ordinal++) {
        if ((readers >> ordinal & 1) != 0) {
            access[count++] =
                (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        }
    }
    return count > 0 ? mp__cu.pool_access(mempool->handle, access, count) : CUDA_SUCCESS;
}

CUresult mp__cuda_mempools_grant(const cuda_device *owner, uint64_t readers) {
    CUresult result = CUDA_SUCCESS;
    for (const cuda_mempool *mempool = owner->mempools; mempool != NULL && result == CUDA_SUCCESS;
         mempool = mempool->next) {
        result = grant(mempool, readers);
    }
    return result;
}

/* ---- lives ---- */

/* Makes the driver's pool and puts it in the device's list. In the device's context. */
static CUresult open_pool(cuda_device *device, cuda_mempool *fresh, size_t release_threshold) {
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->base.ordinal}};
    CUresult result = mp__cu.pool_create(&fresh->handle, &properties);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    cuuint64_t threshold = release_threshold;
    if (threshold != 0) {
        result = mp__cu.pool_set(fresh->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    }
    (void)pthread_mutex_lock(&device->lock);
    if (result == CUDA_SUCCESS) {
        result = grant(fresh, device->peers);
    }
    if (result == CUDA_SUCCESS) {
        fresh->next = device->mempools;
        device->mempools = fresh;
    }
    (void)pthread_mutex_unlock(&device->lock);
    if (result != CUDA_SUCCESS) {
        (void)mp__cu.pool_destroy(fresh->handle);
    }
    return result;
}

mp_status mp__cuda_mempool_create(mp_device *self, size_t release_threshold, mp_mempool **out) {
    cuda_device *device = cuda_device_of(self);
    if (!device->has_mempools) {
        return MP_FAIL(UNSUPPORTED,
                       "CUDA device %d (%s) has no stream-ordered memory pools; use the arena",
                       self->ordinal, self->info.name);
    }
    cuda_mempool *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a memory pool");
    }
    cuda_scope scope;
    mp_status status = mp__cuda_enter_aside(device, &scope);
    if (status == MP_OK) {
        const CUresult result = open_pool(device, fresh, release_threshold);
        status = mp__cuda_leave(device, &scope, result, "cuMemPoolCreate");
    }
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    *out = (mp_mempool *)(void *)fresh;
    return MP_OK;
}

void mp__cuda_mempool_destroy(mp_device *self, mp_mempool *mempool) {
    cuda_device *device = cuda_device_of(self);
    cuda_mempool *gone = mempool_from(mempool);
    (void)pthread_mutex_lock(&device->lock);
    cuda_mempool **link = &device->mempools;
    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    (void)pthread_mutex_unlock(&device->lock);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.pool_destroy(gone->handle), "cuMemPoolDestroy");
        mp__cuda_exit(&scope);
    }
    free(gone);
}

/* ---- memory ---- */

/* Whether the stream may allocate and free now. Asking disturbs no capture. */
static mp_status check_uncaptured(const cuda_device *device, CUstream stream, const char *call) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = mp__cu.capture_active(stream, &state);
    if (result != CUDA_SUCCESS) {
        return mp__cuda_fail(device, result, "cuStreamIsCapturing");
    }
    if (state != CU_STREAM_CAPTURE_STATUS_NONE) {
        return MP_FAIL(UNSUPPORTED,
                       "%s cannot be captured; do it outside of the capture, or use the arena",
                       call);
    }
    return MP_OK;
}

mp_status mp__cuda_mempool_alloc(mp_device *self, mp_mempool *mempool, mp_stream *stream,
                                 size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    const CUstream queue = cuda_stream_of(stream);
    cuda_scope scope;
    CUdeviceptr address = 0;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const mp_status allowed = check_uncaptured(device, queue, "mempool_alloc");
    if (allowed != MP_OK) {
        mp__cuda_exit(&scope);
        return allowed;
    }
    const CUresult result =
        mp__cu.alloc_from_pool(&address, size, mempool_from(mempool)->handle, queue);
    MP_TRY(mp__cuda_with_size(mp__cuda_leave(device, &scope, result, "cuMemAllocFromPoolAsync"),
                              size));
    *out = (mp_addr)address;
    return MP_OK;
}

mp_status mp__cuda_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size) {
    (void)size;
    cuda_device *device = cuda_device_of(self);
    const CUstream queue = cuda_stream_of(stream);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const mp_status allowed = check_uncaptured(device, queue, "free_async");
    if (allowed != MP_OK) {
        mp__cuda_exit(&scope);
        return allowed;
    }
    return mp__cuda_leave(device, &scope, mp__cu.free_async(addr, queue), "cuMemFreeAsync");
}

mp_status mp__cuda_mempool_trim(mp_device *self, mp_mempool *mempool, size_t keep) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.pool_trim(mempool_from(mempool)->handle, keep);
    return mp__cuda_leave(device, &scope, result, "cuMemPoolTrimTo");
}

/* ---- figures ---- */

typedef struct figure {
    CUmemPool_attribute name;
    size_t place; /* in mp_mempool_usage */
    bool peak;
} figure;

static const figure figures[] = {
    {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, offsetof(mp_mempool_usage, reserved), false},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, offsetof(mp_mempool_usage, reserved_max), true},
    {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, offsetof(mp_mempool_usage, used), false},
    {CU_MEMPOOL_ATTR_USED_MEM_HIGH, offsetof(mp_mempool_usage, used_max), true},
};

mp_status mp__cuda_mempool_usage(mp_device *self, mp_mempool *mempool, mp_mempool_usage *out) {
    cuda_device *device = cuda_device_of(self);
    mp_mempool_usage usage = {0};
    cuda_scope scope;
    CUresult result = CUDA_SUCCESS;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    for (size_t i = 0; i < MP_COUNT_OF(figures) && result == CUDA_SUCCESS; i++) {
        cuuint64_t value = 0;
        result = mp__cu.pool_get(mempool_from(mempool)->handle, figures[i].name, &value);
        *(size_t *)(void *)((char *)&usage + figures[i].place) = (size_t)value;
    }
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuMemPoolGetAttribute"));
    /* A peak that was reset stays 0 until the next request. */
    usage.reserved_max = MP_MAX(usage.reserved_max, usage.reserved);
    usage.used_max = MP_MAX(usage.used_max, usage.used);
    *out = usage;
    return MP_OK;
}

mp_status mp__cuda_mempool_reset_peaks(mp_device *self, mp_mempool *mempool) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUresult result = CUDA_SUCCESS;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    for (size_t i = 0; i < MP_COUNT_OF(figures) && result == CUDA_SUCCESS; i++) {
        cuuint64_t zero = 0; /* the only value allowed; the driver restarts at the present value */
        if (figures[i].peak) {
            result = mp__cu.pool_set(mempool_from(mempool)->handle, figures[i].name, &zero);
        }
    }
    return mp__cuda_leave(device, &scope, result, "cuMemPoolSetAttribute");
}
