/* cuda_virtual.c - addresses without memory, memory put behind them, and access between GPUs.
 *
 * Each granule (2 MiB) is a piece of memory of its own, so any run of granules can be unmapped, no
 * matter how it was mapped. A piece's handle is released right after mapping: the driver keeps the
 * memory for as long as it is mapped. Every reserved range has one bit a granule that says whether
 * memory is behind it, which is what a GPU that gets access later needs to know.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include <assert.h>
#include <stdlib.h>

typedef struct cuda_region {
    mp_addr base;
    size_t granules;
    struct cuda_region *next;
    uint64_t mapped[]; /* one bit a granule */
} cuda_region;

static bool is_mapped(const cuda_region *region, size_t index) {
    return (region->mapped[index / 64] >> (index % 64) & 1) != 0;
}

static void mark(cuda_region *region, size_t first, size_t count, bool mapped) {
    for (size_t i = first; i < first + count; i++) {
        const uint64_t bit = (uint64_t)1 << (i % 64);
        region->mapped[i / 64] =
            mapped ? region->mapped[i / 64] | bit : region->mapped[i / 64] & ~bit;
    }
}

/* The region that holds a range whose granules are all mapped, or all not. Under the lock. */
static mp_status region_of(cuda_device *device, mp_addr addr, size_t size, bool mapped,
                           cuda_region **out) {
    const size_t granule = device->granule;
    for (cuda_region *region = device->regions; region != NULL; region = region->next) {
        const size_t bytes = region->granules * granule;
        if (addr < region->base || addr - region->base >= bytes ||
            size > bytes - (addr - region->base) || (addr - region->base) % granule != 0 ||
            size % granule != 0) {
            continue;
        }
        const size_t first = (addr - region->base) / granule;
        for (size_t i = first; i < first + size / granule; i++) {
            if (is_mapped(region, i) != mapped) {
                return MP_FAIL(INVALID_ARGUMENT,
                               "the %zu bytes at %#zx on CUDA device %d are %s at %#zx", size,
                               (size_t)addr, device->base.ordinal,
                               mapped ? "not all mapped: nothing is" : "already mapped",
                               (size_t)(region->base + i * granule));
            }
        }
        *out = region;
        return MP_OK;
    }
    return MP_FAIL(
        INVALID_ARGUMENT,
        "the %zu bytes at %#zx are not whole granules (%zu bytes) of a range reserved on "
        "CUDA device %d",
        size, (size_t)addr, granule, device->base.ordinal);
}

size_t mp__cuda_granule(mp_device *self) {
    return cuda_device_of(self)->granule;
}

mp_status mp__cuda_reserve(mp_device *self, size_t size, mp_addr *out) {
    cuda_device *device = cuda_device_of(self);
    const size_t granules = device->granule != 0 ? size / device->granule : 0;
    if (device->granule == 0) {
        return MP_FAIL(UNSUPPORTED, "CUDA device %d (%s) has no virtual memory management",
                       self->ordinal, self->info.name);
    }
    if (size % device->granule != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%zu bytes to reserve are not a multiple of %zu", size,
                       device->granule);
    }
    cuda_region *fresh = calloc(1, sizeof *fresh + (granules / 64 + 1) * sizeof fresh->mapped[0]);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a %zu byte range", size);
    }
    cuda_scope scope;
    mp_status status = mp__cuda_enter_aside(device, &scope);
    if (status == MP_OK) {
        CUdeviceptr address = 0;
        const CUresult result = mp__cu.address_reserve(&address, size, 0, 0, 0);
        fresh->base = (mp_addr)address;
        status = mp__cuda_leave(device, &scope, result, "cuMemAddressReserve");
    }
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    fresh->granules = granules;
    *out = fresh->base;
    (void)pthread_mutex_lock(&device->lock);
    fresh->next = device->regions;
    device->regions = fresh;
    (void)pthread_mutex_unlock(&device->lock);
    return MP_OK;
}

void mp__cuda_unreserve(mp_device *self, mp_addr addr, size_t size) {
    cuda_device *device = cuda_device_of(self);
    (void)pthread_mutex_lock(&device->lock);
    cuda_region **link = &device->regions;
    while (*link != NULL && (*link)->base != addr) {
        link = &(*link)->next;
    }
    cuda_region *gone = *link;
    if (gone != NULL) {
        *link = gone->next;
    }
    (void)pthread_mutex_unlock(&device->lock);
    free(gone);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.address_free(addr, size), "cuMemAddressFree");
        mp__cuda_exit(&scope);
    }
}

/* ---- memory behind addresses ---- */

static CUmemLocation location_of(int ordinal) {
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
}

static CUmemAllocationProp memory_of(const cuda_device *device) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = location_of(device->base.ordinal)};
}

static CUresult piece_map(const cuda_device *device, mp_addr addr) {
    const CUmemAllocationProp properties = memory_of(device);
    CUmemGenericAllocationHandle piece = 0;
    CUresult result = mp__cu.memory_create(&piece, device->granule, &properties, 0);
    if (result == CUDA_SUCCESS) {
        result = mp__cu.memory_map(addr, device->granule, 0, piece, 0);
        (void)mp__cu.memory_release(piece);
    }
    return result;
}

/* Lets this device and every peer use mapped memory. Under the lock. */
static CUresult access_grant(const cuda_device *device, mp_addr addr, size_t size) {
    CUmemAccessDesc readers[CUDA_DEVICES_MAX];
    size_t count = 0;
    for (int ordinal = 0; ordinal < CUDA_DEVICES_MAX; ordinal++) {
        if (ordinal == device->base.ordinal || (device->peers >> ordinal & 1) != 0) {
            readers[count++] = (CUmemAccessDesc){.location = location_of(ordinal),
                                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        }
    }
    return mp__cu.memory_access(addr, size, readers, count);
}

/* All or nothing. Under the lock, in the device's context. */
static CUresult range_map(const cuda_device *device, mp_addr addr, size_t size) {
    size_t done = 0;
    CUresult result = CUDA_SUCCESS;
    while (done < size && result == CUDA_SUCCESS) {
        result = piece_map(device, addr + done);
        done += result == CUDA_SUCCESS ? device->granule : 0;
    }
    if (result == CUDA_SUCCESS) {
        result = access_grant(device, addr, size);
    }
    if (result != CUDA_SUCCESS && done > 0) {
        (void)mp__cu.memory_unmap(addr, done);
    }
    return result;
}

/* Maps or unmaps. Under the lock. */
static mp_status range_change(cuda_device *device, mp_addr addr, size_t size, bool mapping) {
    cuda_region *region = NULL;
    cuda_scope scope;
    MP_TRY(region_of(device, addr, size, !mapping, &region));
    assert(region != NULL);
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result =
        mapping ? range_map(device, addr, size) : mp__cu.memory_unmap(addr, size);
    MP_TRY(mp__cuda_leave(device, &scope, result,
                          mapping ? "mapping memory (cuMemCreate, cuMemMap, cuMemSetAccess)"
                                  : "cuMemUnmap"));
    mark(region, (addr - region->base) / device->granule, size / device->granule, mapping);
    return MP_OK;
}

static mp_status range_change_locked(mp_device *self, mp_addr addr, size_t size, bool mapping) {
    cuda_device *device = cuda_device_of(self);
    (void)pthread_mutex_lock(&device->lock);
    const mp_status status = range_change(device, addr, size, mapping);
    (void)pthread_mutex_unlock(&device->lock);
    return status;
}

mp_status mp__cuda_map(mp_device *self, mp_addr addr, size_t size) {
    return range_change_locked(self, addr, size, true);
}

mp_status mp__cuda_unmap(mp_device *self, mp_addr addr, size_t size) {
    return range_change_locked(self, addr, size, false);
}

/* ---- moving memory to other addresses ----
 * A piece may be mapped at two places, so the new place is made first: up to the last step, nothing
 * has happened at the old one. */

/* Maps the piece behind `source` at `target`, too. */
static CUresult piece_share(const cuda_device *device, mp_addr target, mp_addr source) {
    CUmemGenericAllocationHandle piece = 0;
    CUresult result = mp__cu.memory_retain(&piece, (void *)source);
    if (result == CUDA_SUCCESS) {
        result = mp__cu.memory_map(target, device->granule, 0, piece, 0);
        (void)mp__cu.memory_release(piece);
    }
    return result;
}

/* All or nothing. Under the lock, in the device's context. */
static CUresult range_move(const cuda_device *device, mp_addr target, mp_addr source, size_t size) {
    size_t done = 0;
    CUresult result = CUDA_SUCCESS;
    while (done < size && result == CUDA_SUCCESS) {
        result = piece_share(device, target + done, source + done);
        done += result == CUDA_SUCCESS ? device->granule : 0;
    }
    if (result == CUDA_SUCCESS) {
        result = access_grant(device, target, size);
    }
    if (result == CUDA_SUCCESS) {
        result = mp__cu.memory_unmap(source, size);
    }
    if (result != CUDA_SUCCESS && done > 0) {
        (void)mp__cu.memory_unmap(target, done);
    }
    return result;
}

/* Under the lock. */
static mp_status remap_locked(cuda_device *device, mp_addr target, mp_addr source, size_t size) {
    cuda_region *from = NULL;
    cuda_region *to = NULL;
    cuda_scope scope;
    MP_TRY(region_of(device, source, size, true, &from));
    MP_TRY(region_of(device, target, size, false, &to));
    assert(from != NULL && to != NULL);
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = range_move(device, target, source, size);
    MP_TRY(mp__cuda_leave(device, &scope, result,
                          "moving memory (cuMemRetainAllocationHandle, cuMemMap, cuMemSetAccess, "
                          "cuMemUnmap)"));
    const size_t count = size / device->granule;
    mark(from, (source - from->base) / device->granule, count, false);
    mark(to, (target - to->base) / device->granule, count, true);
    return MP_OK;
}

mp_status mp__cuda_remap(mp_device *self, mp_addr target, mp_addr source, size_t size) {
    cuda_device *device = cuda_device_of(self);
    (void)pthread_mutex_lock(&device->lock);
    const mp_status status = remap_locked(device, target, source, size);
    (void)pthread_mutex_unlock(&device->lock);
    return status;
}

/* ---- between devices ---- */

/* Opens all mapped memory of `owner` to the devices in its `peers`. Under the owner's lock. */
static CUresult regions_grant(const cuda_device *owner) {
    for (const cuda_region *region = owner->regions; region != NULL; region = region->next) {
        for (size_t i = 0; i < region->granules; i++) {
            const CUresult result =
                is_mapped(region, i)
                    ? access_grant(owner, region->base + i * owner->granule, owner->granule)
                    : CUDA_SUCCESS;
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
    }
    return CUDA_SUCCESS;
}

/* Each way of allocating has its own way of granting: plain memory through the contexts,
 * mempools and mapped memory each by itself. */
static mp_status grant_all(cuda_device *device, cuda_device *owner) {
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    CUresult result = mp__cu.context_peer(owner->context, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        const uint64_t reader = (uint64_t)1 << device->base.ordinal;
        (void)pthread_mutex_lock(&owner->lock);
        owner->peers |= reader;
        result = mp__cuda_mempools_grant(owner, reader);
        if (result == CUDA_SUCCESS) {
            result = regions_grant(owner);
        }
        (void)pthread_mutex_unlock(&owner->lock);
    }
    return mp__cuda_leave(device, &scope, result, "enabling access between GPUs");
}

mp_status mp__cuda_peer_enable(mp_device *self, mp_device *other) {
    if (other->info.kind != MP_DEVICE_CUDA) {
        return MP_FAIL(UNSUPPORTED, "CUDA device %d cannot reach the memory of %s", self->ordinal,
                       other->info.name);
    }
    if (self == other) {
        return MP_OK;
    }
    cuda_device *device = cuda_device_of(self);
    cuda_device *owner = cuda_device_of(other);
    int possible = 0;
    const CUresult result = mp__cu.device_peer(&possible, device->handle, owner->handle);
    if (result != CUDA_SUCCESS) {
        return mp__cuda_fail(device, result, "cuDeviceCanAccessPeer");
    }
    if (possible == 0) {
        return MP_FAIL(UNSUPPORTED,
                       "CUDA device %d cannot reach the memory of CUDA device %d: the two GPUs are "
                       "not connected, copies between them go through the host",
                       self->ordinal, other->ordinal);
    }
    return grant_all(device, owner);
}
