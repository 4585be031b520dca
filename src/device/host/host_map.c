/* host_map.c - addresses without memory, and memory put behind them.
 *
 * A reservation is a mapping that no access is allowed to. Putting memory behind a part of it
 * allows access; taking it away replaces the part by a fresh mapping, so that the pages go back to
 * the system and a stale access faults.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { EMPTY_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

size_t mp__host_granule(mp_device *self) {
    (void)self;
    return HOST_GRANULE;
}

static mp_status check_multiple(mp_addr addr, size_t size, const char *call) {
    if (size == 0 || size % HOST_GRANULE != 0 || addr % HOST_GRANULE != 0) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "%s of %zu bytes at 0x%zx: both must be multiples of the granule of %d bytes", call,
            size, (size_t)addr, HOST_GRANULE);
    }
    return MP_OK;
}

mp_status mp__host_reserve(mp_device *self, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "reserve"));
    MP_TRY(check_multiple(0, size, "reserve"));
    /* Room to align the begin; what sticks out at both ends is given back. */
    char *memory = size > SIZE_MAX - HOST_GRANULE
                       ? MAP_FAILED
                       : mmap(NULL, size + HOST_GRANULE, PROT_NONE, EMPTY_FLAGS, -1, 0);
    if (memory == MAP_FAILED) {
        return MP_FAIL(OUT_OF_MEMORY, "the machine cannot provide %zu bytes of addresses", size);
    }
    const size_t before = (HOST_GRANULE - (mp_addr)memory % HOST_GRANULE) % HOST_GRANULE;
    if (before > 0) {
        (void)munmap(memory, before);
    }
    (void)munmap(memory + before + size, HOST_GRANULE - before);
    const mp_addr addr = (mp_addr)memory + before;
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status =
        mp__host_range_insert(&host->reserved, (host_range){.begin = addr, .size = size});
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (status != MP_OK) {
        (void)munmap((void *)addr, size);
        return status;
    }
    *out = addr;
    return MP_OK;
}

/* Whether any byte of the range has memory. Under memory_lock. */
static bool has_memory(const host_device *host, mp_addr addr, size_t size) {
    const size_t index = mp__host_range_after(&host->ranges, addr);
    return index < host->ranges.count && host->ranges.items[index].begin < addr + size;
}

void mp__host_unreserve(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    (void)pthread_mutex_lock(&host->memory_lock);
    const host_range *range = mp__host_range_find(&host->reserved, addr);
    if (range == NULL || range->begin != addr || range->size != size) {
        mp__host_breach(host, "unreserve of %zu bytes at 0x%zx, which is not a reservation", size,
                        (size_t)addr);
    } else if (has_memory(host, addr, size)) {
        mp__host_breach(host, "unreserve of %zu bytes at 0x%zx, where memory is still mapped", size,
                        (size_t)addr);
    } else {
        mp__host_range_remove(&host->reserved, range);
        (void)munmap((void *)addr, size);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
}

/* Makes reserved addresses usable. Under memory_lock. */
static mp_status make_usable(host_device *host, mp_addr addr, size_t size, const char *call) {
    const host_range *range = mp__host_range_find(&host->reserved, addr);
    if (range == NULL || addr + size > range->begin + range->size || has_memory(host, addr, size)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s of %zu bytes at 0x%zx, which are not reserved or have memory already",
                       call, size, (size_t)addr);
    }
    if (mprotect((void *)addr, size, PROT_READ | PROT_WRITE) != 0) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "the machine cannot provide %zu bytes for the emulated device: %s", size,
                       strerror(errno));
    }
    const mp_status status = mp__host_range_insert(
        &host->ranges, (host_range){.begin = addr, .size = size, .kind = HOST_RANGE_MAPPED});
    if (status != MP_OK) {
        (void)mprotect((void *)addr, size, PROT_NONE);
    }
    return status;
}

mp_status mp__host_map(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "map"));
    MP_TRY(check_multiple(addr, size, "map"));
    MP_TRY(mp__host_charge(host, size));
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = make_usable(host, addr, size, "map");
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (status != MP_OK) {
        mp__host_refund(host, size);
    } else if (mp__host_adversarial(host)) {
        mp__host_poison(addr, size, HOST_POISON_FRESH);
    }
    return status;
}

/* Under memory_lock. */
static mp_status check_mapped(const host_device *host, mp_addr addr, size_t size,
                              const char *call) {
    const host_range *range = mp__host_range_find(&host->ranges, addr);
    if (range == NULL || range->kind != HOST_RANGE_MAPPED ||
        !mp__host_range_covers(&host->ranges, addr, size)) {
        return MP_FAIL(INVALID_ARGUMENT, "%s of %zu bytes at 0x%zx, where no memory is mapped",
                       call, size, (size_t)addr);
    }
    return MP_OK;
}

/* Forgets the memory behind the range. A failure leaves it known. Under memory_lock. */
static mp_status forget(host_device *host, mp_addr addr, size_t size) {
    MP_TRY(mp__host_range_cut(&host->dead, addr, size));
    return mp__host_range_cut(&host->ranges, addr, size);
}

/* Gives the pages back to the system. */
static mp_status make_unusable(mp_addr addr, size_t size) {
    if (mmap((void *)addr, size, PROT_NONE, EMPTY_FLAGS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return MP_FAIL(DEVICE, "the machine did not take back %zu bytes at 0x%zx: %s", size,
                       (size_t)addr, strerror(errno));
    }
    return MP_OK;
}

static mp_status unmap_locked(host_device *host, mp_addr addr, size_t size) {
    MP_TRY(check_mapped(host, addr, size, "unmap"));
    MP_TRY(forget(host, addr, size));
    host->memory_used -= size;
    return make_unusable(addr, size);
}

mp_status mp__host_unmap(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "unmap"));
    MP_TRY(check_multiple(addr, size, "unmap"));
    mp__host_check_unused(host, addr, size, "unmap");
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = unmap_locked(host, addr, size);
    (void)pthread_mutex_unlock(&host->memory_lock);
    return status;
}

/* Nobody can tell a copy from moved pages, and a copy cannot stop halfway. */
static mp_status remap_locked(host_device *host, mp_addr target, mp_addr source, size_t size) {
    MP_TRY(check_mapped(host, source, size, "remap"));
    MP_TRY(make_usable(host, target, size, "remap"));
    const mp_status status = forget(host, source, size);
    if (status != MP_OK) {
        (void)mp__host_range_cut(&host->ranges, target, size);
        (void)mprotect((void *)target, size, PROT_NONE);
        return status;
    }
    memcpy((void *)target, (const void *)source, size);
    return make_unusable(source, size);
}

mp_status mp__host_remap(mp_device *self, mp_addr target, mp_addr source, size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "remap"));
    MP_TRY(check_multiple(target, size, "remap"));
    MP_TRY(check_multiple(source, size, "remap"));
    mp__host_check_unused(host, source, size, "remap");
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = remap_locked(host, target, source, size);
    (void)pthread_mutex_unlock(&host->memory_lock);
    return status;
}

void mp__host_map_close(host_device *host) {
    for (size_t i = 0; i < host->reserved.count; i++) {
        (void)munmap((void *)host->reserved.items[i].begin, host->reserved.items[i].size);
    }
}
