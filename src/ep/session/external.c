/* external.c - memory and timeline semaphores of other APIs, by POSIX file descriptor.
 *
 * A descriptor stays its caller's. Everything that comes in is checked: sizes and offsets are
 * somebody else's numbers. Memory lives until its handle and every tensor over it have gone:
 *
 *     importer --+
 *     handle ----+--> imported memory, counted        tensors free themselves through `keeper`,
 *     tensors ---+                                    the allocator that each one names
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/session/plugin.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct importer {
    OrtExternalResourceImporterImpl base; /* first */
    mp_unit *unit;                        /* its factory is kept */
    const OrtEpDevice *ep_device;         /* borrowed */
} importer;

typedef struct memory {
    OrtExternalMemoryHandle base; /* first */
    OrtAllocator keeper;
    atomic_int references;
    mp_unit *unit; /* its factory is kept */
    mp_import *import;
    mp_addr addr;
} memory;

typedef struct semaphore {
    OrtExternalSemaphoreHandle base; /* first */
    mp_unit *unit;                   /* its factory is kept */
    mp_semaphore *semaphore;
} semaphore;

static importer *from(const OrtExternalResourceImporterImpl *self) {
    return (importer *)(uintptr_t)self;
}

/* A descriptor is passed as a pointer that holds its number. */
static mp_status descriptor_of(const void *native, int *fd) {
    const uintptr_t number = (uintptr_t)native;
    if (number > INT_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "the native handle %p is not a file descriptor", native);
    }
    *fd = (int)number;
    return MP_OK;
}

/* ---- memory ---- */

static void memory_drop(memory *m) {
    if (atomic_fetch_sub_explicit(&m->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    mp_device *device = m->unit->device;
    device->ops->import_close(device, m->import);
    mp_factory *factory = m->unit->factory;
    free(m);
    mp__factory_drop(factory);
}

static void handle_release(OrtExternalMemoryHandle *handle) {
    memory_drop((memory *)handle);
}

static void release_memory(OrtExternalResourceImporterImpl *self, OrtExternalMemoryHandle *handle) {
    (void)self;
    if (handle != NULL) {
        memory_drop((memory *)handle);
    }
}

static void *keeper_alloc(OrtAllocator *self, size_t size) {
    (void)self, (void)size;
    return NULL; /* it only takes back */
}

static void keeper_free(OrtAllocator *self, void *data) {
    (void)data;
    memory_drop(MP_CONTAINER_OF(self, memory, keeper));
}

static const OrtMemoryInfo *keeper_info(const OrtAllocator *self) {
    return MP_CONTAINER_OF((OrtAllocator *)(uintptr_t)self, memory, keeper)->unit->memory;
}

static bool can_import_memory(const OrtExternalResourceImporterImpl *self,
                              OrtExternalMemoryHandleType type) {
    (void)self;
    return type == ORT_EXTERNAL_MEMORY_HANDLE_TYPE_VK_MEMORY_OPAQUE_FD;
}

static mp_status check_memory(const OrtExternalMemoryDescriptor *about, int *fd) {
    if (about->handle_type != ORT_EXTERNAL_MEMORY_HANDLE_TYPE_VK_MEMORY_OPAQUE_FD) {
        return MP_FAIL(UNSUPPORTED,
                       "memory of handle type %d cannot be imported; only POSIX file descriptors "
                       "(VK_MEMORY_OPAQUE_FD) can",
                       (int)about->handle_type);
    }
    if (about->size_bytes == 0 || about->offset_bytes >= about->size_bytes) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "imported memory of %zu bytes has nothing behind its offset of %zu",
                       about->size_bytes, about->offset_bytes);
    }
    return descriptor_of(about->native_handle, fd);
}

static OrtStatus *import_memory(OrtExternalResourceImporterImpl *self,
                                const OrtExternalMemoryDescriptor *about,
                                OrtExternalMemoryHandle **out) {
    importer *owner = from(self);
    mp_device *device = owner->unit->device;
    int fd = -1;
    *out = NULL;
    MP_TRY_ORT(check_memory(about, &fd));
    memory *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to import memory"));
    }
    const mp_status status =
        device->ops->import_open(device, fd, about->size_bytes, &m->import, &m->addr);
    if (status != MP_OK) {
        free(m);
        return mp__to_ort(status);
    }
    mp__factory_keep(owner->unit->factory);
    m->unit = owner->unit;
    m->references = 1;
    m->base = (OrtExternalMemoryHandle){.version = mp_the_plugin.version,
                                        .ep_device = owner->ep_device,
                                        .descriptor = *about,
                                        .Release = handle_release};
    m->keeper = (OrtAllocator){.version = mp_the_plugin.version,
                               .Alloc = keeper_alloc,
                               .Free = keeper_free,
                               .Info = keeper_info};
    *out = &m->base;
    return NULL;
}

/* ---- tensors ---- */

static mp_status tensor_bytes(const OrtExternalTensorDescriptor *about, size_t *out) {
    size_t bytes = mp__element_size(about->element_type);
    if (bytes == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "a tensor of ONNX's element type %d cannot be imported",
                       (int)about->element_type);
    }
    if (about->rank > 0 && about->shape == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "a tensor of rank %zu has no shape", about->rank);
    }
    for (size_t i = 0; i < about->rank; i++) {
        const int64_t dim = about->shape[i];
        if (dim < 0 || (dim > 0 && bytes > SIZE_MAX / (uint64_t)dim)) {
            return MP_FAIL(INVALID_ARGUMENT, "a tensor cannot have %lld for its dimension %zu",
                           (long long)dim, i);
        }
        bytes *= (size_t)dim;
    }
    *out = bytes;
    return MP_OK;
}

/* Where the tensor lies; its size is `bytes`. */
static mp_status place(const memory *m, const OrtExternalTensorDescriptor *about, mp_addr *addr,
                       size_t *bytes) {
    const size_t size = m->base.descriptor.size_bytes;
    const size_t begin = m->base.descriptor.offset_bytes; /* below the size */
    const size_t element = mp__element_size(about->element_type);
    MP_TRY(tensor_bytes(about, bytes));
    if (about->offset_bytes > size - begin || *bytes > size - begin - about->offset_bytes) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a tensor of %zu bytes at offset %zu does not fit into imported memory of "
                       "%zu bytes, of which %zu are in front of it",
                       *bytes, about->offset_bytes, size, begin);
    }
    *addr = m->addr + begin + about->offset_bytes;
    if (*addr % element != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a tensor of elements of %zu bytes cannot begin at offset %zu", element,
                       begin + about->offset_bytes);
    }
    return MP_OK;
}

static OrtStatus *create_tensor(OrtExternalResourceImporterImpl *self,
                                const OrtExternalMemoryHandle *handle,
                                const OrtExternalTensorDescriptor *about, OrtValue **out) {
    (void)self;
    memory *m = (memory *)(uintptr_t)handle;
    mp_addr addr = 0;
    size_t bytes = 0;
    *out = NULL;
    if (m == NULL || about == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "a tensor over imported memory needs a handle "
                                                    "of that memory and a descriptor"));
    }
    MP_TRY_ORT(place(m, about, &addr, &bytes));
    atomic_fetch_add_explicit(&m->references, 1, memory_order_relaxed);
    OrtStatus *status = ORT->CreateTensorWithDataAndDeleterAsOrtValue(
        &m->keeper, (void *)addr, bytes, about->shape, about->rank, about->element_type, out);
    if (status != NULL) {
        atomic_fetch_sub_explicit(&m->references, 1, memory_order_relaxed);
    }
    return status;
}

/* ---- semaphores ---- */

static bool can_import_semaphore(const OrtExternalResourceImporterImpl *self,
                                 OrtExternalSemaphoreType type) {
    (void)self;
    return type == ORT_EXTERNAL_SEMAPHORE_VK_TIMELINE_SEMAPHORE_OPAQUE_FD;
}

static void semaphore_release(OrtExternalSemaphoreHandle *handle) {
    semaphore *s = (semaphore *)handle;
    mp_device *device = s->unit->device;
    device->ops->semaphore_close(device, s->semaphore);
    mp_factory *factory = s->unit->factory;
    free(s);
    mp__factory_drop(factory);
}

static void release_semaphore(OrtExternalResourceImporterImpl *self,
                              OrtExternalSemaphoreHandle *handle) {
    (void)self;
    if (handle != NULL) {
        semaphore_release(handle);
    }
}

static OrtStatus *import_semaphore(OrtExternalResourceImporterImpl *self,
                                   const OrtExternalSemaphoreDescriptor *about,
                                   OrtExternalSemaphoreHandle **out) {
    importer *owner = from(self);
    mp_device *device = owner->unit->device;
    int fd = -1;
    *out = NULL;
    if (!can_import_semaphore(self, about->type)) {
        return mp__to_ort(MP_FAIL(UNSUPPORTED,
                                  "a semaphore of type %d cannot be imported; only timeline "
                                  "semaphores by POSIX file descriptor can",
                                  (int)about->type));
    }
    MP_TRY_ORT(descriptor_of(about->native_handle, &fd));
    semaphore *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return mp__to_ort(
            MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to import a semaphore"));
    }
    const mp_status status = device->ops->semaphore_open(device, fd, &s->semaphore);
    if (status != MP_OK) {
        free(s);
        return mp__to_ort(status);
    }
    mp__factory_keep(owner->unit->factory);
    s->unit = owner->unit;
    s->base = (OrtExternalSemaphoreHandle){.version = mp_the_plugin.version,
                                           .ep_device = owner->ep_device,
                                           .descriptor = *about,
                                           .Release = semaphore_release};
    *out = &s->base;
    return NULL;
}

/* What the device does with a semaphore on a stream. */
typedef mp_status semaphore_call(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                 uint64_t value);

static OrtStatus *on_stream(OrtExternalResourceImporterImpl *self,
                            const OrtExternalSemaphoreHandle *handle, const OrtSyncStream *stream,
                            uint64_t value, semaphore_call *call) {
    mp_stream *on = mp__stream_of(stream);
    if (handle == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "there is no semaphore to signal or wait for"));
    }
    if (on == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT,
                                  "a semaphore is signalled and waited for on a stream of %s, and "
                                  "this is none",
                                  from(self)->unit->factory->name->provider));
    }
    return mp__to_ort(
        call(from(self)->unit->device, ((const semaphore *)handle)->semaphore, on, value));
}

static OrtStatus *wait_semaphore(OrtExternalResourceImporterImpl *self,
                                 OrtExternalSemaphoreHandle *handle, OrtSyncStream *stream,
                                 uint64_t value) {
    return on_stream(self, handle, stream, value, from(self)->unit->device->ops->semaphore_wait);
}

static OrtStatus *signal_semaphore(OrtExternalResourceImporterImpl *self,
                                   OrtExternalSemaphoreHandle *handle, OrtSyncStream *stream,
                                   uint64_t value) {
    return on_stream(self, handle, stream, value, from(self)->unit->device->ops->semaphore_signal);
}

/* ---- the importer ---- */

static void release(OrtExternalResourceImporterImpl *self) {
    mp_factory *factory = from(self)->unit->factory;
    free(self);
    mp__factory_drop(factory);
}

OrtStatus *mp__external_create(OrtEpFactory *self, const OrtEpDevice *device,
                               OrtExternalResourceImporterImpl **out) {
    mp_factory *factory = (mp_factory *)self;
    mp_unit *unit = device != NULL ? mp__unit_with(factory, ORT->EpDevice_Device(device)) : NULL;
    *out = NULL;
    if (unit == NULL) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT, "the device given is not one of %s",
                                  factory->name->provider));
    }
    importer *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to import memory"));
    }
    mp__factory_keep(factory);
    fresh->unit = unit;
    fresh->ep_device = device;
    fresh->base = (OrtExternalResourceImporterImpl){
        .ort_version_supported = mp_the_plugin.version,
        .CanImportMemory = can_import_memory,
        .ImportMemory = import_memory,
        .ReleaseMemory = release_memory,
        .CreateTensorFromMemory = create_tensor,
        .CanImportSemaphore = can_import_semaphore,
        .ImportSemaphore = import_semaphore,
        .ReleaseSemaphore = release_semaphore,
        .WaitSemaphore = wait_semaphore,
        .SignalSemaphore = signal_semaphore,
        .Release = release,
    };
    *out = &fresh->base;
    return NULL;
}
