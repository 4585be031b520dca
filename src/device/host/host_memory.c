/* host_memory.c - memory of the emulated device, and pinned memory.
 *
 * An adversarial device puts a border behind every allocation, and keeps what is freed for a while
 * (poisoned, in the table as HOST_RANGE_FREED), so that late writes and stale addresses show.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BORDER_BYTES = 256 };

mp_status mp__host_charge(host_device *host, size_t size) {
    (void)pthread_mutex_lock(&host->memory_lock);
    const size_t used = host->memory_used, limit = host->config.memory_bytes;
    const bool fits = used <= limit && size <= limit - used;
    if (fits) {
        host->memory_used += size;
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (!fits) {
        return MP_FAIL(
            OUT_OF_MEMORY,
            "%zu bytes requested on emulated device %d, where %zu of %zu are in use; free "
            "some, or raise MILLPOND_HOST_MEMORY",
            size, host->base.ordinal, used, limit);
    }
    return MP_OK;
}

void mp__host_refund(host_device *host, size_t size) {
    (void)pthread_mutex_lock(&host->memory_lock);
    host->memory_used -= size;
    (void)pthread_mutex_unlock(&host->memory_lock);
}

mp_status mp__host_memory_info(mp_device *self, size_t *free_bytes, size_t *total_bytes) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "memory_info"));
    (void)pthread_mutex_lock(&host->memory_lock);
    *total_bytes = host->config.memory_bytes;
    *free_bytes = host->config.memory_bytes - host->memory_used;
    (void)pthread_mutex_unlock(&host->memory_lock);
    return MP_OK;
}

/* ---- getting ---- */

/* Allocations of at least this many bytes go into the shared file of a device that has one: smaller
 * ones would need a mapping each. */
enum { FILE_BYTES_MIN = 4096 };

static size_t border_of(const host_device *host) {
    return mp__host_adversarial(host) ? BORDER_BYTES : 0;
}

static mp_status machine_alloc(host_device *host, size_t size, bool shared, void **out,
                               uint64_t *offset) {
    const size_t border = border_of(host);
    *offset = 0;
    if (shared && size >= FILE_BYTES_MIN && size <= SIZE_MAX - border) {
        return mp__host_file_alloc(host, size + border, out, offset);
    }
    if (size > SIZE_MAX - border || posix_memalign(out, MP_ALIGNMENT, size + border) != 0) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "the machine cannot provide %zu bytes for the emulated device", size);
    }
    return MP_OK;
}

static void machine_free(host_device *host, mp_addr addr, size_t size, uint64_t offset) {
    if (offset != 0) {
        mp__host_file_free(host, (void *)addr, size + border_of(host), offset);
    } else {
        free((void *)addr);
    }
}

mp_status mp__host_obtain(host_device *host, size_t size, host_range_kind kind, mp_mempool *mempool,
                          mp_addr *out) {
    void *memory = NULL;
    uint64_t offset = 0;
    const bool shared = host->config.ipc && kind == HOST_RANGE_DEVICE && mempool == NULL;
    MP_TRY(machine_alloc(host, size, shared, &memory, &offset));
    const mp_addr addr = (mp_addr)memory;
    if (mp__host_adversarial(host)) {
        mp__host_poison(addr, size, HOST_POISON_FRESH);
        mp__host_poison(addr + size, BORDER_BYTES, HOST_POISON_FREED);
    }
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = mp__host_range_insert(
        &host->ranges,
        (host_range){
            .begin = addr, .size = size, .kind = kind, .mempool = mempool, .offset = offset});
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (status != MP_OK) {
        machine_free(host, addr, size, offset);
        return status;
    }
    if (mempool != NULL) {
        mp__host_object_keep(&mempool->object);
    }
    *out = addr;
    return MP_OK;
}

mp_status mp__host_alloc(mp_device *self, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "alloc"));
    MP_TRY(mp__host_charge(host, size));
    const mp_status status = mp__host_obtain(host, size, HOST_RANGE_DEVICE, NULL, out);
    if (status != MP_OK) {
        mp__host_refund(host, size);
    }
    return status;
}

mp_status mp__host_alloc_pinned(mp_device *self, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "alloc_pinned"));
    return mp__host_obtain(host, size, HOST_RANGE_PINNED, NULL, out);
}

/* ---- giving back; all under memory_lock ---- */

static void check_still_poisoned(host_device *host, mp_addr addr, size_t size, const char *what) {
    if (!mp__host_poisoned(addr, size, HOST_POISON_FREED)) {
        mp__host_breach(host, "something has written %s, into %zu bytes at 0x%zx", what, size,
                        (size_t)addr);
    }
}

static void evict(host_device *host, const host_range *range) {
    check_still_poisoned(host, range->begin, range->size, "into freed memory");
    host->quarantine_size -= range->size;
    const host_range gone = *range;
    mp__host_range_remove(&host->ranges, range);
    machine_free(host, gone.begin, gone.size, gone.offset);
}

static const host_range *oldest_freed(const host_device *host) {
    const host_range *oldest = NULL;
    for (size_t i = 0; i < host->ranges.count; i++) {
        const host_range *range = &host->ranges.items[i];
        if (range->kind == HOST_RANGE_FREED && (oldest == NULL || range->serial < oldest->serial)) {
            oldest = range;
        }
    }
    return oldest;
}

static void put_in_quarantine(host_device *host, host_range *range) {
    check_still_poisoned(host, range->begin + range->size, BORDER_BYTES,
                         "behind the end of an allocation");
    (void)mp__host_range_cut(&host->dead, range->begin, range->size);
    mp__host_poison(range->begin, range->size, HOST_POISON_FREED);
    range->kind = HOST_RANGE_FREED;
    range->serial = host->free_count++;
    host->quarantine_size += range->size;
    while (host->quarantine_size > host->quarantine_max) {
        evict(host, oldest_freed(host));
    }
}

bool mp__host_is_lent(const host_range *range, mp_addr addr, size_t size, bool pinned) {
    return range != NULL && range->begin == addr && range->size == size &&
           range->kind != HOST_RANGE_FREED && range->kind != HOST_RANGE_MAPPED &&
           range->kind != HOST_RANGE_OPENED && (range->kind == HOST_RANGE_PINNED) == pinned;
}

void mp__host_give_back(host_device *host, mp_addr addr, size_t size, bool pinned) {
    (void)pthread_mutex_lock(&host->memory_lock);
    host_range *range = mp__host_range_find(&host->ranges, addr);
    if (!mp__host_is_lent(range, addr, size, pinned)) {
        const bool twice = range != NULL && range->kind == HOST_RANGE_FREED;
        mp__host_breach(host, "free of %zu bytes at 0x%zx, which %s", size, (size_t)addr,
                        twice ? "have been freed already" : "is not an allocation of that size");
        (void)pthread_mutex_unlock(&host->memory_lock);
        return;
    }
    if (!pinned) {
        mp__host_mempool_return(host, range);
    }
    if (mp__host_adversarial(host)) {
        put_in_quarantine(host, range);
    } else {
        const uint64_t offset = range->offset;
        mp__host_range_remove(&host->ranges, range);
        machine_free(host, addr, size, offset);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
}

void mp__host_check_unused(host_device *host, mp_addr addr, size_t size, const char *call) {
    if (mp__host_adversarial(host)) {
        (void)pthread_mutex_lock(&host->lock);
        mp__host_check_gone(host, addr, size, call);
        (void)pthread_mutex_unlock(&host->lock);
    }
}

void mp__host_free(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    mp__host_check_unused(host, addr, size, "free");
    mp__host_give_back(host, addr, size, false);
}

void mp__host_free_pinned(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    mp__host_check_unused(host, addr, size, "free_pinned");
    mp__host_give_back(host, addr, size, true);
}

/* ---- what an allocator above takes and gives ---- */

/* Poisons what there is of the range: parts of reserved addresses may have no memory. Under
 * memory_lock. */
static void poison_part(const host_device *host, mp_addr addr, size_t size, uint16_t pattern) {
    const mp_addr end = addr + size;
    for (size_t i = mp__host_range_after(&host->ranges, addr);
         i < host->ranges.count && host->ranges.items[i].begin < end; i++) {
        const host_range *range = &host->ranges.items[i];
        const mp_addr from = MP_MAX(range->begin, addr);
        const mp_addr range_end = range->begin + range->size;
        if (range->kind != HOST_RANGE_FREED) {
            mp__host_poison(from, MP_MIN(range_end, end) - from, pattern);
        }
    }
}

void mp__host_note(mp_device *self, mp_addr addr, size_t size, bool live) {
    host_device *host = mp__host_from(self);
    if (!mp__host_adversarial(host) || size == 0) {
        return;
    }
    (void)pthread_mutex_lock(&host->lock);
    (void)pthread_mutex_lock(&host->memory_lock);
    mp_status status = mp__host_range_cut(&host->dead, addr, size);
    if (status == MP_OK) {
        status = mp__host_range_cut(&host->lent, addr, size);
    }
    if (status == MP_OK) {
        host->loans += live;
        status =
            mp__host_range_insert(live ? &host->lent : &host->dead,
                                  (host_range){.begin = addr,
                                               .size = size,
                                               .kind = live ? HOST_RANGE_DEVICE : HOST_RANGE_FREED,
                                               .serial = host->loans});
    }
    /* Work queued before may still use these bytes, and then they stay as they are. Of a launch
     * only the addresses are known, so any use of the allocation from its begin on counts. */
    const host_range *around = mp__host_range_find(&host->ranges, addr);
    const mp_addr begin = around != NULL ? around->begin : addr;
    if (status == MP_OK && !mp__host_in_use(host, begin, addr + size - begin)) {
        poison_part(host, addr, size, live ? HOST_POISON_FRESH : HOST_POISON_FREED);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    (void)pthread_mutex_unlock(&host->lock);
}

/* ---- the end ---- */

size_t mp__host_memory_close(host_device *host) {
    size_t left = host->reserved.count;
    mp__host_check_freed(host, SIZE_MAX);
    for (size_t i = 0; i < host->ranges.count; i++) {
        const host_range *range = &host->ranges.items[i];
        left += range->kind != HOST_RANGE_FREED;
        if (range->kind == HOST_RANGE_OPENED) {
            (void)munmap((void *)range->begin, range->size);
        } else if (range->kind != HOST_RANGE_MAPPED) {
            machine_free(host, range->begin, range->size, range->offset);
        }
        if (range->mempool != NULL) {
            mp__host_object_drop(&range->mempool->object);
        }
    }
    if (host->file >= 0) {
        (void)close(host->file);
    }
    mp__host_map_close(host);
    mp__host_range_clear(&host->ranges);
    mp__host_range_clear(&host->reserved);
    mp__host_range_clear(&host->dead);
    mp__host_range_clear(&host->lent);
    return left;
}
