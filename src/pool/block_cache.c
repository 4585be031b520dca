/* block_cache.c - blocks in a hash table by address, and free ones in lists by size class.
 *
 * Classes are eighths of powers of two, so at most an eighth of a block is not asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/block_cache.h"

#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

enum { STEPS = 8, SMALLEST = 512, CLASSES = 64 * STEPS, BUCKETS_FIRST = 256 };

typedef struct block {
    struct block *next_in_bucket;
    struct block *next_free, *previous_free;
    const mp_stream *stream; /* the last user; never dereferenced */
    mp_addr addr;
    size_t size;
    bool lent;
} block;

struct mp_block_cache {
    mp_device *device; /* borrowed */
    bool pinned;
    pthread_mutex_t lock; /* guards everything below */
    block **buckets;      /* owned; bucket_count of them, a power of two */
    size_t bucket_count, block_count;
    block *free[CLASSES];
    mp_block_cache_stats stats;
};

/* ---- size classes ---- */

/* The class whose blocks hold at least `size`, and their size. */
static int class_of(size_t size, size_t *rounded) {
    if (size <= SMALLEST) {
        *rounded = SMALLEST;
        return 0;
    }
    const int power = 63 - __builtin_clzll((unsigned long long)(size - 1)); /* size > 2^power */
    const size_t base = (size_t)1 << power;
    const size_t step = base / STEPS;
    const size_t steps = (size - base + step - 1) / step; /* 1 to STEPS */
    *rounded = base + steps * step;
    return (power - 9) * STEPS + (int)steps;
}

/* ---- hash table; with the lock held ---- */

static size_t bucket_of(const mp_block_cache *cache, mp_addr addr) {
    return (size_t)((addr >> 9) * 0x9E3779B97F4A7C15u >> 20) & (cache->bucket_count - 1);
}

static void grow_table(mp_block_cache *cache) {
    const size_t count = cache->bucket_count * 2;
    block **old = cache->buckets;
    const size_t old_count = cache->bucket_count;
    block **fresh = calloc(count, sizeof *fresh);
    if (fresh == NULL) {
        return; /* longer chains, nothing worse */
    }
    cache->buckets = fresh;
    cache->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        for (block *b = old[i], *next = NULL; b != NULL; b = next) {
            next = b->next_in_bucket;
            const size_t at = bucket_of(cache, b->addr);
            b->next_in_bucket = fresh[at];
            fresh[at] = b;
        }
    }
    free(old);
}

static void table_add(mp_block_cache *cache, block *b) {
    if (cache->block_count >= cache->bucket_count) {
        grow_table(cache);
    }
    const size_t at = bucket_of(cache, b->addr);
    b->next_in_bucket = cache->buckets[at];
    cache->buckets[at] = b;
    cache->block_count++;
}

static void table_remove(mp_block_cache *cache, const block *b) {
    block **link = &cache->buckets[bucket_of(cache, b->addr)];
    while (*link != b) {
        link = &(*link)->next_in_bucket;
    }
    *link = b->next_in_bucket;
    cache->block_count--;
}

static block *table_find(const mp_block_cache *cache, mp_addr addr) {
    block *b = cache->buckets[bucket_of(cache, addr)];
    while (b != NULL && b->addr != addr) {
        b = b->next_in_bucket;
    }
    return b;
}

/* ---- free lists; with the lock held ---- */

static void list_push(mp_block_cache *cache, block *b) {
    size_t ignored = 0;
    block **head = &cache->free[class_of(b->size, &ignored)];
    b->previous_free = NULL;
    b->next_free = *head;
    if (*head != NULL) {
        (*head)->previous_free = b;
    }
    *head = b;
}

static void list_remove(mp_block_cache *cache, block *b) {
    size_t ignored = 0;
    if (b->previous_free != NULL) {
        b->previous_free->next_free = b->next_free;
    } else {
        cache->free[class_of(b->size, &ignored)] = b->next_free;
    }
    if (b->next_free != NULL) {
        b->next_free->previous_free = b->previous_free;
    }
}

static block *take_free(mp_block_cache *cache, int class, const mp_stream *stream) {
    for (block *b = cache->free[class]; b != NULL; b = b->next_free) {
        if (b->stream == stream || b->stream == NULL) {
            list_remove(cache, b);
            return b;
        }
    }
    return NULL;
}

/* ---- the device ---- */

static mp_status device_alloc(const mp_block_cache *cache, size_t size, mp_addr *out) {
    mp_device *device = cache->device;
    return cache->pinned ? device->ops->alloc_pinned(device, size, out)
                         : device->ops->alloc(device, size, out);
}

static void device_free(const mp_block_cache *cache, const block *b) {
    mp_device *device = cache->device;
    if (cache->pinned) {
        device->ops->free_pinned(device, b->addr, b->size);
    } else {
        device->ops->free(device, b->addr, b->size);
    }
}

/* Gives kept blocks back; with the lock held. Returns the bytes. */
static size_t release_kept(mp_block_cache *cache) {
    size_t bytes = 0;
    for (int c = 0; c < CLASSES; c++) {
        for (block *b = cache->free[c], *next = NULL; b != NULL; b = next) {
            next = b->next_free;
            table_remove(cache, b);
            bytes += b->size;
            device_free(cache, b);
            free(b);
        }
        cache->free[c] = NULL;
    }
    cache->stats.total -= bytes;
    return bytes;
}

/* With the lock held. */
static mp_status add_block(mp_block_cache *cache, size_t size, block **out) {
    block *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for the record of a %zu byte block", size);
    }
    mp_status status = device_alloc(cache, size, &fresh->addr);
    if (status == MP_OUT_OF_MEMORY && cache->device->ops->synchronize(cache->device) == MP_OK &&
        release_kept(cache) > 0) {
        status = device_alloc(cache, size, &fresh->addr);
    }
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    fresh->size = size;
    table_add(cache, fresh);
    cache->stats.total += size;
    cache->stats.device_allocs++;
    *out = fresh;
    return MP_OK;
}

/* ---- the interface ---- */

mp_status mp_block_cache_create(mp_device *device, bool pinned, mp_block_cache **out) {
    mp_block_cache *cache = calloc(1, sizeof *cache);
    block **buckets = calloc(BUCKETS_FIRST, sizeof *buckets);
    if (cache == NULL || buckets == NULL) {
        free(cache);
        free(buckets);
        return MP_FAIL(OUT_OF_MEMORY, "no host memory for a block cache");
    }
    cache->device = device;
    cache->pinned = pinned;
    cache->buckets = buckets;
    cache->bucket_count = BUCKETS_FIRST;
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return MP_OK;
}

void mp_block_cache_destroy(mp_block_cache *cache) {
    if (cache == NULL) {
        return;
    }
    if (cache->device->ops->synchronize(cache->device) != MP_OK) {
        MP_LOG(WARNING, "freeing memory of a device that reports: %s", mp_error_message());
    }
    for (size_t i = 0; i < cache->bucket_count; i++) {
        for (block *b = cache->buckets[i], *next = NULL; b != NULL; b = next) {
            next = b->next_in_bucket;
            device_free(cache, b);
            free(b);
        }
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache->buckets);
    free(cache);
}

mp_status mp_block_cache_alloc(mp_block_cache *cache, size_t size, const mp_stream *stream,
                               mp_addr *out) {
    if (size > SIZE_MAX / 4) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes are more than any device has", size);
    }
    size_t rounded = 0;
    const int class = class_of(size, &rounded);
    mp_status status = MP_OK;
    pthread_mutex_lock(&cache->lock);
    block *b = take_free(cache, class, stream);
    if (b == NULL) {
        status = add_block(cache, rounded, &b);
    }
    if (status == MP_OK) {
        b->lent = true;
        b->stream = stream;
        mp_block_cache_stats *stats = &cache->stats;
        stats->allocs++;
        stats->in_use += b->size;
        stats->in_use_max = stats->in_use > stats->in_use_max ? stats->in_use : stats->in_use_max;
        stats->request_max = size > stats->request_max ? size : stats->request_max;
        *out = b->addr;
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

void mp_block_cache_free(mp_block_cache *cache, mp_addr addr) {
    if (addr == 0) {
        return;
    }
    pthread_mutex_lock(&cache->lock);
    block *b = table_find(cache, addr);
    const bool known = b != NULL && b->lent;
    if (known) {
        b->lent = false;
        cache->stats.in_use -= b->size;
        list_push(cache, b);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!known) {
        MP_LOG(ERROR, "address 0x%" PRIxPTR " was freed but is not lent; it is left alone", addr);
    }
}

void mp_block_cache_settle(mp_block_cache *cache, const mp_stream *stream) {
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < cache->bucket_count; i++) {
        for (block *b = cache->buckets[i]; b != NULL; b = b->next_in_bucket) {
            if (b->stream == stream) {
                b->stream = NULL;
            }
        }
    }
    pthread_mutex_unlock(&cache->lock);
}

mp_status mp_block_cache_shrink(mp_block_cache *cache) {
    pthread_mutex_lock(
        &cache->lock); /* first, or a block used meanwhile might be freed too early */
    const mp_status status = cache->device->ops->synchronize(cache->device);
    if (status == MP_OK) {
        release_kept(cache);
        cache->stats.shrinks++;
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

mp_block_cache_stats mp_block_cache_get_stats(mp_block_cache *cache) {
    pthread_mutex_lock(&cache->lock);
    const mp_block_cache_stats stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
    return stats;
}
