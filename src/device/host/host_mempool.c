/* host_mempool.c - memory ordered by streams, as the driver's memory pools have it.
 *
 * A mempool counts: what it has from the device (reserved) is what is given out, what is freed but
 * not reached by its stream, and what is kept for later (cached). Kept bytes stay charged to the
 * device; the machine's memory behind them is always fresh, so that stale addresses show.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_memory.h"
#include "device/host/host_work.h"

/* ---- bookkeeping; all under memory_lock ---- */

/* Gives kept bytes back to the device until `keep` bytes are left, or only what is in use. */
static void release(host_device *host, mp_mempool *mempool, size_t keep) {
    const size_t above = mempool->usage.reserved > keep ? mempool->usage.reserved - keep : 0;
    const size_t size = MP_MIN(above, mempool->cached);
    mempool->cached -= size;
    mempool->usage.reserved -= size;
    host->memory_used -= size;
}

static void take_peaks(mp_mempool_usage *usage) {
    usage->reserved_max = MP_MAX(usage->reserved, usage->reserved_max);
    usage->used_max = MP_MAX(usage->used, usage->used_max);
}

/* Charges `size` bytes: kept ones first, the rest from the device. `*fresh` is the rest. */
static mp_status charge(host_device *host, mp_mempool *mempool, size_t size, size_t *fresh) {
    const size_t kept = MP_MIN(mempool->cached, size);
    const size_t limit = host->config.memory_bytes;
    if (host->memory_used > limit || size - kept > limit - host->memory_used) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "%zu bytes requested from a mempool on emulated device %d, where %zu of %zu "
                       "are in use; free some, or raise MILLPOND_HOST_MEMORY",
                       size, host->base.ordinal, host->memory_used, limit);
    }
    *fresh = size - kept;
    mempool->cached -= kept;
    mempool->usage.reserved += *fresh;
    mempool->usage.used += size;
    host->memory_used += *fresh;
    take_peaks(&mempool->usage);
    return MP_OK;
}

static void uncharge(host_device *host, mp_mempool *mempool, size_t size, size_t fresh) {
    mempool->usage.used -= size;
    mempool->usage.reserved -= fresh;
    mempool->cached += size - fresh;
    host->memory_used -= fresh;
}

void mp__host_mempool_return(host_device *host, host_range *range) {
    mp_mempool *mempool = range->mempool;
    if (mempool == NULL) {
        host->memory_used -= range->size;
        return;
    }
    if (!range->leaving) {
        mempool->usage.used -= range->size;
    }
    mempool->cached += range->size;
    if (mempool->closed) {
        release(host, mempool, 0);
    }
    range->mempool = NULL;
    mp__host_object_drop(&mempool->object);
}

void mp__host_mempools_settle(host_device *host) {
    (void)pthread_mutex_lock(&host->memory_lock);
    for (mp_mempool *mempool = host->mempools; mempool != NULL; mempool = mempool->next) {
        release(host, mempool, mempool->threshold);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
}

/* ---- lives ---- */

mp_status mp__host_mempool_create(mp_device *self, size_t release_threshold, mp_mempool **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "mempool_create"));
    if (host->config.no_mempools) {
        return MP_FAIL(UNSUPPORTED,
                       "emulated device %d has no stream-ordered memory pools "
                       "(MILLPOND_HOST_MEMPOOLS=0); use the arena",
                       host->base.ordinal);
    }
    mp_mempool *mempool = NULL;
    MP_TRY(mp__host_object_create(host, HOST_MEMPOOL, sizeof *mempool, &mempool));
    mempool->threshold = release_threshold;
    (void)pthread_mutex_lock(&host->memory_lock);
    mempool->next = host->mempools;
    host->mempools = mempool;
    (void)pthread_mutex_unlock(&host->memory_lock);
    *out = mempool;
    return MP_OK;
}

void mp__host_mempool_destroy(mp_device *self, mp_mempool *mempool) {
    host_device *host = mp__host_from(self);
    (void)pthread_mutex_lock(&host->memory_lock);
    mp_mempool **link = &host->mempools;
    while (*link != mempool) {
        link = &(*link)->next;
    }
    *link = mempool->next;
    mempool->closed = true;
    release(host, mempool, 0);
    (void)pthread_mutex_unlock(&host->memory_lock);
    mp__host_object_destroy(host, &mempool->object);
}

/* ---- items ---- */

static bool run_alloc(host_device *host, host_queue *queue, host_item *item) {
    (void)queue;
    (void)pthread_mutex_lock(&host->memory_lock);
    host_range *range = mp__host_range_find(&host->ranges, item->memory.addr);
    if (range != NULL && range->kind == HOST_RANGE_PENDING) {
        range->kind = HOST_RANGE_DEVICE;
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    return true;
}

static const host_item_kind alloc_kind = {.run = run_alloc, .not_captured = "mempool_alloc"};

static bool run_free(host_device *host, host_queue *queue, host_item *item) {
    (void)queue;
    mp__host_check_unused(host, item->memory.addr, item->memory.size, "free_async");
    mp__host_give_back(host, item->memory.addr, item->memory.size, false);
    return true;
}

static const host_item_kind free_kind = {.run = run_free, .not_captured = "free_async"};

/* ---- memory ---- */

static mp_status check_uncaptured(const mp_stream *stream, const char *call) {
    if (stream->queue->capture != NULL) {
        return MP_FAIL(UNSUPPORTED,
                       "%s cannot be captured; do it outside of the capture, or use the arena",
                       call);
    }
    return MP_OK;
}

static mp_status obtain_charged(host_device *host, mp_mempool *mempool, size_t size, mp_addr *out) {
    const host_range_kind kind =
        mp__host_adversarial(host) ? HOST_RANGE_PENDING : HOST_RANGE_DEVICE;
    size_t fresh = 0;
    (void)pthread_mutex_lock(&host->memory_lock);
    mp_status status = charge(host, mempool, size, &fresh);
    (void)pthread_mutex_unlock(&host->memory_lock);
    MP_TRY(status);
    status = mp__host_obtain(host, size, kind, mempool, out);
    (void)pthread_mutex_lock(&host->memory_lock);
    if (status != MP_OK) {
        uncharge(host, mempool, size, fresh);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    return status;
}

mp_status mp__host_mempool_alloc(mp_device *self, mp_mempool *mempool, mp_stream *stream,
                                 size_t size, mp_addr *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "mempool_alloc"));
    MP_TRY(check_uncaptured(stream, "mempool_alloc"));
    mp_addr addr = 0;
    if (obtain_charged(host, mempool, size, &addr) != MP_OK) {
        /* What this stream is still to free may be enough. */
        mp__host_drain(host, stream->queue);
        MP_TRY(obtain_charged(host, mempool, size, &addr));
    }
    host_item item = {.kind = &alloc_kind, .memory = {.addr = addr, .size = size}};
    const mp_status status = mp__host_enqueue(host, stream->queue, &item);
    if (status != MP_OK) {
        mp__host_give_back(host, addr, size, false);
        return status;
    }
    *out = addr;
    return MP_OK;
}

/* Marks an allocation as being freed, or no longer so. Returns whether it could be marked. */
static bool mark_leaving(host_device *host, mp_addr addr, size_t size, bool leaving) {
    (void)pthread_mutex_lock(&host->memory_lock);
    host_range *range = mp__host_range_find(&host->ranges, addr);
    const bool right = mp__host_is_lent(range, addr, size, false) && range->leaving != leaving;
    if (right) {
        range->leaving = leaving;
        if (range->mempool != NULL) {
            mp_mempool_usage *usage = &range->mempool->usage;
            usage->used = leaving ? usage->used - size : usage->used + size;
        }
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    return right;
}

mp_status mp__host_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "free_async"));
    MP_TRY(check_uncaptured(stream, "free_async"));
    if (!mark_leaving(host, addr, size, true)) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "free_async of %zu bytes at 0x%zx, which are not an allocation of that size or "
            "are being freed already",
            size, (size_t)addr);
    }
    host_item item = {.kind = &free_kind, .memory = {.addr = addr, .size = size}};
    const mp_status status = mp__host_enqueue(host, stream->queue, &item);
    if (status != MP_OK) {
        (void)mark_leaving(host, addr, size, false);
    }
    return status;
}

mp_status mp__host_mempool_trim(mp_device *self, mp_mempool *mempool, size_t keep) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "mempool_trim"));
    (void)pthread_mutex_lock(&host->memory_lock);
    release(host, mempool, keep);
    (void)pthread_mutex_unlock(&host->memory_lock);
    return MP_OK;
}

/* ---- figures ---- */

mp_status mp__host_mempool_usage(mp_device *self, mp_mempool *mempool, mp_mempool_usage *out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "mempool_usage"));
    (void)pthread_mutex_lock(&host->memory_lock);
    *out = mempool->usage;
    (void)pthread_mutex_unlock(&host->memory_lock);
    return MP_OK;
}

mp_status mp__host_mempool_reset_peaks(mp_device *self, mp_mempool *mempool) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "mempool_reset_peaks"));
    (void)pthread_mutex_lock(&host->memory_lock);
    mempool->usage.reserved_max = mempool->usage.reserved;
    mempool->usage.used_max = mempool->usage.used;
    (void)pthread_mutex_unlock(&host->memory_lock);
    return MP_OK;
}
