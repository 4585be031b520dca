/* mempool.c - a pool in mempool mode: allocates, frees, trims.
 *
 * A free queues, in this order: a wait for every further stream that was declared, and the driver's
 * free. Where one of these streams is being captured nothing is queued, since that would break the
 * capture or become part of it; the block then waits in `later` for the capture to end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"

#include "base/log.h"
#include "pool/limit.h"
#include "pool/trace/trace_label.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- lives ---- */

static mp_status open_driver(mp__mempool *pool) {
    const mp_device_ops *ops = pool->device->ops;
    MP_TRY(mp__mempool_table_open(pool));
    MP_TRY(ops->mempool_create(pool->device, pool->options.release_threshold, &pool->driver));
    const mp_status status = ops->stream_create(pool->device, &pool->own.wrap);
    if (status != MP_OK) {
        ops->mempool_destroy(pool->device, pool->driver);
    }
    return status;
}

mp_status mp__mempool_create(mp_device *device, const mp__mempool_options *options,
                             mp__mempool **out) {
    mp__mempool *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a pool");
    }
    fresh->device = device;
    fresh->options = *options;
    fresh->own.native = MP_NO_STREAM;
    fresh->own.share.stream = MP_NO_STREAM;
    const mp_status status = open_driver(fresh);
    if (status != MP_OK) {
        free(fresh->buckets);
        free(fresh);
        return status;
    }
    (void)pthread_mutex_init(&fresh->lock, NULL);
    (void)pthread_cond_init(&fresh->idle, NULL);
    *out = fresh;
    return MP_OK;
}

/* ---- limits ---- */

/* Under the lock. */
static mp_status take_size(mp__mempool *pool, size_t size) {
    const size_t most = pool->options.max_mem;
    if (size > most - pool->counted) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes more would exceed arena.max_mem (%zu bytes)", size,
                       most);
    }
    if (!mp__limit_take(size)) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "%zu bytes more would exceed the limit of the process (%zu bytes, "
                       "MILLPOND_LIMIT)",
                       size, mp_limit_get());
    }
    pool->counted += size;
    return MP_OK;
}

/* Under the lock. */
static void give_size(mp__mempool *pool, size_t size) {
    pool->counted -= size;
    mp__limit_give(size);
}

/* ---- streams of a block ---- */

/* Holds, or lets go, every stream that freeing the block calls. Under the lock. */
static void hold_streams(const mempool_block *block, bool hold) {
    const size_t step = hold ? 1 : SIZE_MAX; /* SIZE_MAX is one less */
    block->stream->users += step;
    block->free_on->users += step;
    for (const mempool_use *use = block->uses; use != NULL; use = use->next) {
        use->stream->users += step;
    }
}

static mp_status any_captured(mp__mempool *pool, const mempool_block *block, bool *captured) {
    MP_TRY(mp__mempool_is_captured(pool, block->free_on, captured));
    for (const mempool_use *use = block->uses; use != NULL && !*captured; use = use->next) {
        MP_TRY(mp__mempool_is_captured(pool, use->stream, captured));
    }
    return MP_OK;
}

static bool any_foreign(const mempool_block *block) {
    bool foreign = mp__mempool_is_foreign(block->free_on);
    for (const mempool_use *use = block->uses; use != NULL; use = use->next) {
        foreign |= mp__mempool_is_foreign(use->stream);
    }
    return foreign;
}

/* ---- freeing ---- */

static mp_status wait_for_uses(mp__mempool *pool, const mempool_block *block) {
    const mp_device_ops *ops = pool->device->ops;
    mp_event *event = NULL;
    mp_status status = ops->event_create(pool->device, false, &event);
    uint64_t count = 0;
    for (const mempool_use *use = block->uses; use != NULL && status == MP_OK; use = use->next) {
        if (use->stream != block->free_on) {
            status = ops->event_record(pool->device, event, use->stream->wrap);
            if (status == MP_OK) {
                status = ops->event_wait(pool->device, event, block->free_on->wrap);
            }
            count++;
        }
    }
    if (event != NULL) {
        ops->event_destroy(pool->device, event);
    }
    (void)pthread_mutex_lock(&pool->lock);
    pool->stats.events += count;
    pool->stats.waits += count;
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

/* `*later`: nothing was done, since a stream is being captured. */
static mp_status free_in_order(mp__mempool *pool, const mempool_block *block, bool *later) {
    if (block->uses != NULL) {
        MP_TRY(any_captured(pool, block, later));
        if (*later) {
            return MP_OK;
        }
        MP_TRY(wait_for_uses(pool, block));
    }
    const mp_status status =
        pool->device->ops->free_async(pool->device, block->free_on->wrap, block->addr, block->size);
    *later = status == MP_UNSUPPORTED;
    return *later ? MP_OK : status;
}

/* Only its thread can queue anything on such a stream; but once the device has ended all work,
 * nothing need be ordered. */
static mp_status free_after_all(mp__mempool *pool, const mempool_block *block) {
    const mp_device_ops *ops = pool->device->ops;
    MP_TRY(ops->synchronize(pool->device));
    return ops->free_async(pool->device, pool->own.wrap, block->addr, block->size);
}

/* Frees a block that is in no list and whose streams are held, which it lets go. A failure puts the
 * block back: among the allocated ones, or among those for later. */
static mp_status free_held(mp__mempool *pool, mempool_block *block, bool lent) {
    bool later = false;
    const mp_status status =
        any_foreign(block) ? free_after_all(pool, block) : free_in_order(pool, block, &later);
    (void)pthread_mutex_lock(&pool->lock);
    hold_streams(block, false);
    (void)pthread_cond_broadcast(&pool->idle);
    pool->stats.frees += status == MP_OK && lent;
    if (status == MP_OK && !later) {
        give_size(pool, block->size);
    }
    if (status != MP_OK && lent) {
        mp__mempool_link(pool, block);
    } else if (status != MP_OK || later) {
        block->next = pool->later;
        pool->later = block;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    if (status == MP_OK && !later) {
        mp__mempool_block_free(block);
    }
    return status;
}

/* Takes an allocated block out of the table, its streams held. `own_order`: freed where it was
 * allocated. */
static mp_status take(mp__mempool *pool, mp_addr addr, bool own_order, void *native,
                      mempool_block **out) {
    mempool_block *block = mp__mempool_get(pool, addr);
    if (block == NULL) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "0x%zx is not an allocated block of this pool: it was never allocated there, has been "
            "freed already, or lies inside a block",
            (size_t)addr);
    }
    block->free_on = block->stream;
    if (!own_order) {
        MP_TRY(mp__mempool_stream_of(pool, native, &block->free_on));
    }
    mp__mempool_unlink(pool, block);
    hold_streams(block, true);
    *out = block;
    return MP_OK;
}

static mp_status free_block(mp__mempool *pool, mp_addr addr, bool own_order, void *native) {
    if (addr == 0) {
        return MP_OK;
    }
    mempool_block *block = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    const mp_status status = take(pool, addr, own_order, native, &block);
    (void)pthread_mutex_unlock(&pool->lock);
    return status == MP_OK ? free_held(pool, block, true) : status;
}

mp_status mp__mempool_free(mp__mempool *pool, mp_addr addr) {
    return free_block(pool, addr, true, NULL);
}

mp_status mp__mempool_free_on(mp__mempool *pool, mp_addr addr, void *stream) {
    return free_block(pool, addr, false, stream);
}

void mp__mempool_collect(mp__mempool *pool) {
    (void)pthread_mutex_lock(&pool->lock);
    mempool_block *block = pool->later;
    pool->later = NULL;
    for (const mempool_block *each = block; each != NULL; each = each->next) {
        hold_streams(each, true);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    while (block != NULL) {
        mempool_block *next = block->next;
        (void)free_held(pool, block, false);
        block = next;
    }
}

/* ---- allocating ---- */

static mp_status check_request(const mp__mempool *pool, size_t size) {
    if (size > pool->device->info.memory_bytes) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes requested, and %s has %zu in all", size,
                       pool->device->info.name, pool->device->info.memory_bytes);
    }
    return MP_OK;
}

/* Memory that may be used in the order of the block's stream; without one, at once. */
static mp_status get_memory(mp__mempool *pool, mempool_block *block) {
    const mp_device_ops *ops = pool->device->ops;
    mp_stream *wrap = block->stream->wrap;
    MP_TRY(ops->mempool_alloc(pool->device, pool->driver, wrap, block->size, &block->addr));
    if (block->stream != &pool->own) {
        return MP_OK;
    }
    const mp_status status = ops->stream_synchronize(pool->device, wrap);
    if (status != MP_OK && ops->free_async(pool->device, wrap, block->addr, block->size) != MP_OK) {
        ops->free(pool->device, block->addr, block->size);
    }
    return status;
}

/* What streams have freed but not reached yet may be enough. */
static mp_status get_memory_patiently(mp__mempool *pool, mempool_block *block) {
    const mp_status status = get_memory(pool, block);
    if (status != MP_OUT_OF_MEMORY) {
        return status;
    }
    (void)mp__mempool_wait(pool);
    mp__mempool_collect(pool);
    return get_memory(pool, block);
}

static void count_request(mp__mempool *pool, const mempool_block *block) {
    mp_pool_stats *stats = &pool->stats;
    stats->allocs++;
    stats->reserves += block->reserved;
    stats->alloc_size_max = MP_MAX(block->requested, stats->alloc_size_max);
    pool->clients[block->client].allocs++;
    block->stream->share.allocs++;
}

/* Takes: `block`, which is allocated or freed afterwards. Its stream is held. */
static mp_status lend(mp__mempool *pool, mempool_block *block, mp_addr *out) {
    mempool_stream *stream = block->stream; /* the block's may change once it is in the table */
    (void)pthread_mutex_lock(&pool->lock);
    mp_status status = take_size(pool, block->size);
    (void)pthread_mutex_unlock(&pool->lock);
    const bool counted = status == MP_OK;
    if (counted) {
        status = get_memory_patiently(pool, block);
    }
    (void)pthread_mutex_lock(&pool->lock);
    if (status == MP_OK) {
        *out = block->addr;
        mp__mempool_link(pool, block);
        count_request(pool, block);
    } else if (counted) {
        give_size(pool, block->size);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    mp__mempool_unhold(pool, stream);
    if (status != MP_OK) {
        mp__mempool_block_free(block);
    }
    return status;
}

static mp_status lend_new(mp__mempool *pool, size_t size, void *stream, uint8_t client,
                          bool reserved, mp_addr *out) {
    MP_TRY(check_request(pool, size));
    mempool_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a block");
    }
    block->requested = size > 0 ? size : 1;
    block->size = MP_ALIGN_UP(block->requested, MP_ALIGNMENT);
    block->client = client;
    block->label = mp__label_now();
    block->reserved = reserved;
    const mp_status status = mp__mempool_hold(pool, stream, &block->stream);
    if (status != MP_OK) {
        free(block);
        return status;
    }
    mp__mempool_collect(pool);
    return lend(pool, block, out);
}

mp_status mp__mempool_alloc(mp__mempool *pool, size_t size, void *stream, uint8_t client,
                            mp_addr *out) {
    return lend_new(pool, size, stream, client, false, out);
}

mp_status mp__mempool_reserve(mp__mempool *pool, size_t size, uint8_t client, mp_addr *out) {
    return lend_new(pool, size, MP_NO_STREAM, client, true, out);
}

void mp__mempool_count_failure(mp__mempool *pool) {
    (void)pthread_mutex_lock(&pool->lock);
    pool->stats.failures++;
    (void)pthread_mutex_unlock(&pool->lock);
}

/* ---- giving back ---- */

mp_status mp__mempool_shrink(mp__mempool *pool, size_t *released) {
    const mp_device_ops *ops = pool->device->ops;
    mp_mempool_usage before = {0}, after = {0};
    MP_TRY(ops->mempool_usage(pool->device, pool->driver, &before));
    mp__mempool_collect(pool);
    MP_TRY(mp__mempool_wait(pool));
    MP_TRY(ops->mempool_trim(pool->device, pool->driver, pool->options.bytes_to_keep_on_shrink));
    MP_TRY(ops->mempool_usage(pool->device, pool->driver, &after));
    const size_t less = before.reserved > after.reserved ? before.reserved - after.reserved : 0;
    (void)pthread_mutex_lock(&pool->lock);
    pool->stats.shrinkages += less > 0;
    (void)pthread_mutex_unlock(&pool->lock);
    MP_LOG(INFO,
           "the driver's own pool of device %d was trimmed by %zu bytes, and has %zu bytes now",
           pool->device->ordinal, less, (size_t)after.reserved);
    if (released != NULL) {
        *released = less;
    }
    return MP_OK;
}

/* ---- the end ---- */

/* Frees a block without any order: all work has ended, and nobody else has the pool. */
static void drop(mp__mempool *pool, mempool_block *block) {
    const mp_device_ops *ops = pool->device->ops;
    if (ops->free_async(pool->device, pool->own.wrap, block->addr, block->size) != MP_OK) {
        ops->free(pool->device, block->addr, block->size);
    }
    give_size(pool, block->size);
    mp__mempool_block_free(block);
}

static void drop_list(mp__mempool *pool, mempool_block *block) {
    while (block != NULL) {
        mempool_block *next = block->next;
        drop(pool, block);
        block = next;
    }
}

static void drop_streams(mp__mempool *pool) {
    while (pool->own.next != NULL) {
        mempool_stream *stream = pool->own.next;
        pool->own.next = stream->next;
        pool->device->ops->stream_destroy(pool->device, stream->wrap);
        free(stream);
    }
}

void mp__mempool_destroy(mp__mempool *pool) {
    const mp_device_ops *ops = pool->device->ops;
    if (pool->block_count > 0) {
        MP_LOG(WARNING,
               "a pool of %s is closed with %zu blocks (%" PRIu64 " bytes) still allocated",
               pool->device->info.name, pool->block_count, pool->stats.in_use);
    }
    if (ops->synchronize(pool->device) != MP_OK) {
        MP_LOG(WARNING, "closing a pool: %s", mp_error_message());
    }
    for (size_t i = 0; i < pool->bucket_count; i++) {
        drop_list(pool, pool->buckets[i]);
    }
    drop_list(pool, pool->later);
    drop_streams(pool);
    if (ops->stream_synchronize(pool->device, pool->own.wrap) == MP_OK) {
        (void)ops->mempool_trim(pool->device, pool->driver, 0);
    }
    ops->stream_destroy(pool->device, pool->own.wrap);
    ops->mempool_destroy(pool->device, pool->driver);
    (void)pthread_cond_destroy(&pool->idle);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool->buckets);
    free(pool);
}
