/* host_memory.c - memory of the emulated device, pinned memory, and stream-ordered memory.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An adversarial device puts a border behind every allocation, and keeps what is freed for a while
 * (poisoned, in the table as HOST_RANGE_FREED), so that late writes and stale addresses show. */
#include "device/host/host_internal.h"

#include <stdlib.h>

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
            "%zu bytes asked for on emulated device %d, where %zu of %zu are in use; free "
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

static mp_status obtain(host_device *host, size_t size, host_range_kind kind, mp_addr *out) {
    const bool adversarial = mp__host_adversarial(host);
    const size_t border = adversarial ? BORDER_BYTES : 0;
    void *memory = NULL;
    if (size > SIZE_MAX - border || posix_memalign(&memory, MP_ALIGNMENT, size + border) != 0) {
        return MP_FAIL(OUT_OF_MEMORY, "the machine has no %zu bytes for the emulated device", size);
    }
    const mp_addr addr = (mp_addr)memory;
    if (adversarial) {
        mp__host_poison(addr, size, HOST_POISON_FRESH);
        mp__host_poison(addr + size, border, HOST_POISON_FREED);
    }
    (void)pthread_mutex_lock(&host->memory_lock);
    const mp_status status = mp__host_range_insert(
        &host->ranges, (host_range){.begin = addr, .size = size, .kind = kind});
    (void)pthread_mutex_unlock(&host->memory_lock);
    if (status != MP_OK) {
        free(memory);
        return status;
    }
    *out = addr;
    return MP_OK;
}

static mp_status obtain_charged(host_device *host, size_t size, host_range_kind kind,
                                mp_addr *out) {
    MP_TRY(mp__host_charge(host, size));
    const mp_status status = obtain(host, size, kind, out);
    if (status != MP_OK) {
        mp__host_refund(host, size);
    }
    return status;
}

mp_status mp__host_alloc(mp_device *self, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "alloc"));
    MP_TRY(mp__host_not_capturing(host, "alloc"));
    return obtain_charged(host, size, HOST_RANGE_DEVICE, out);
}

mp_status mp__host_alloc_pinned(mp_device *self, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "alloc_pinned"));
    MP_TRY(mp__host_not_capturing(host, "alloc_pinned"));
    return obtain(host, size, HOST_RANGE_PINNED, out);
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
    void *memory = (void *)range->begin;
    mp__host_range_remove(&host->ranges, range);
    free(memory);
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

/* Whether [addr, addr + size) is one allocation that its user has. */
static bool is_lent(const host_range *range, mp_addr addr, size_t size, bool pinned) {
    return range != NULL && range->begin == addr && range->size == size &&
           range->kind != HOST_RANGE_FREED && range->kind != HOST_RANGE_MAPPED &&
           (range->kind == HOST_RANGE_PINNED) == pinned;
}

static void give_back(host_device *host, mp_addr addr, size_t size, bool pinned) {
    (void)pthread_mutex_lock(&host->memory_lock);
    host_range *range = mp__host_range_find(&host->ranges, addr);
    if (!is_lent(range, addr, size, pinned)) {
        const bool twice = range != NULL && range->kind == HOST_RANGE_FREED;
        mp__host_breach(host, "free of %zu bytes at 0x%zx, which %s", size, (size_t)addr,
                        twice ? "have been freed already" : "is no allocation of that size");
        (void)pthread_mutex_unlock(&host->memory_lock);
        return;
    }
    host->memory_used -= pinned ? 0 : size;
    if (mp__host_adversarial(host)) {
        put_in_quarantine(host, range);
    } else {
        mp__host_range_remove(&host->ranges, range);
        free((void *)addr);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
}

static void check_unused(host_device *host, mp_addr addr, size_t size, const char *call) {
    if (mp__host_adversarial(host)) {
        (void)pthread_mutex_lock(&host->lock);
        mp__host_check_gone(host, addr, size, call);
        (void)pthread_mutex_unlock(&host->lock);
    }
}

void mp__host_free(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    check_unused(host, addr, size, "free");
    give_back(host, addr, size, false);
}

void mp__host_free_pinned(mp_device *self, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    check_unused(host, addr, size, "free_pinned");
    give_back(host, addr, size, true);
}

/* ---- ordered by a stream ---- */

mp_status mp__host_alloc_async(mp_device *self, mp_stream *stream, size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "alloc_async"));
    const host_range_kind kind =
        mp__host_adversarial(host) ? HOST_RANGE_PENDING : HOST_RANGE_DEVICE;
    mp_addr addr = 0;
    if (obtain_charged(host, size, kind, &addr) != MP_OK) {
        /* What this stream is still to free may be enough. */
        mp__host_drain(host, stream->queue);
        MP_TRY(obtain_charged(host, size, kind, &addr));
    }
    host_item item = {.kind = HOST_ALLOC, .memory = {.addr = addr, .size = size}};
    const mp_status status = mp__host_enqueue(host, stream->queue, &item);
    if (status != MP_OK) {
        give_back(host, addr, size, false);
        return status;
    }
    *out = addr;
    return MP_OK;
}

mp_status mp__host_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "free_async"));
    host_item item = {.kind = HOST_FREE, .memory = {.addr = addr, .size = size}};
    return mp__host_enqueue(host, stream->queue, &item);
}

void mp__host_memory_arrive(host_device *host, mp_addr addr) {
    (void)pthread_mutex_lock(&host->memory_lock);
    host_range *range = mp__host_range_find(&host->ranges, addr);
    if (range != NULL && range->kind == HOST_RANGE_PENDING) {
        range->kind = HOST_RANGE_DEVICE;
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
}

void mp__host_memory_leave(host_device *host, mp_addr addr, size_t size) {
    check_unused(host, addr, size, "free_async");
    give_back(host, addr, size, false);
}

/* ---- what an allocator above takes and gives ---- */

void mp__host_device_note(mp_device *device, mp_addr addr, size_t size, bool live) {
    host_device *host = mp__host_from(device);
    if (!mp__host_adversarial(host) || size == 0) {
        return;
    }
    (void)pthread_mutex_lock(&host->lock);
    (void)pthread_mutex_lock(&host->memory_lock);
    mp_status status = mp__host_range_cut(&host->dead, addr, size);
    if (status == MP_OK && !live) {
        status = mp__host_range_insert(
            &host->dead, (host_range){.begin = addr, .size = size, .kind = HOST_RANGE_FREED});
    }
    /* Work queued before may still use these bytes, and then they stay as they are. */
    if (status == MP_OK && !mp__host_in_use(host, addr, size) &&
        mp__host_range_covers(&host->ranges, addr, size)) {
        mp__host_poison(addr, size, live ? HOST_POISON_FRESH : HOST_POISON_FREED);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    (void)pthread_mutex_unlock(&host->lock);
}

size_t mp__host_memory_close(host_device *host) {
    size_t left = host->reserved.count;
    mp__host_check_freed(host, SIZE_MAX);
    for (size_t i = 0; i < host->ranges.count; i++) {
        const host_range *range = &host->ranges.items[i];
        left += range->kind != HOST_RANGE_FREED;
        if (range->kind != HOST_RANGE_MAPPED) {
            free((void *)range->begin);
        }
    }
    mp__host_map_close(host);
    mp__host_range_clear(&host->ranges);
    mp__host_range_clear(&host->reserved);
    mp__host_range_clear(&host->dead);
    return left;
}
