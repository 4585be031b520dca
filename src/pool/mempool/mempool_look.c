/* mempool_look.c - what a pool in mempool mode tells of itself.
 *
 * What is allocated is counted here, byte by byte; what the pool has from the device is for the
 * driver to say. Blocks are counted as allocated only while the driver has them allocated, so the
 * driver's figure is never the smaller one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"

#include <stdlib.h>

/* ---- blocks ---- */

typedef struct search {
    mp_addr addr;
    const mempool_block *found;
} search;

static void look_at(void *context, mempool_block *block, bool lent) {
    search *wanted = context;
    if (lent && wanted->addr >= block->addr && wanted->addr - block->addr < block->size) {
        wanted->found = block;
    }
}

mp_status mp__mempool_find(mp__mempool *pool, mp_addr addr, mp__mempool_block *out) {
    search wanted = {.addr = addr};
    (void)pthread_mutex_lock(&pool->lock);
    mp__mempool_each(pool, look_at, &wanted);
    if (wanted.found != NULL) {
        *out = (mp__mempool_block){.addr = wanted.found->addr,
                                   .size = wanted.found->size,
                                   .requested = wanted.found->requested,
                                   .stream = wanted.found->stream->native,
                                   .label = wanted.found->label,
                                   .client = wanted.found->client};
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return wanted.found != NULL
               ? MP_OK
               : MP_FAIL(NOT_FOUND, "0x%zx lies in no allocated block of this pool", (size_t)addr);
}

typedef struct visit {
    mp__mempool_visit_fn *fn;
    void *context;
} visit;

static void show(void *context, mempool_block *block, bool lent) {
    const visit *v = context;
    v->fn(v->context,
          &(mp__mempool_block){.addr = block->addr,
                               .size = block->size,
                               .requested = block->requested,
                               .stream = block->stream->native,
                               .label = block->label,
                               .client = block->client},
          lent);
}

void mp__mempool_look(mp__mempool *pool, mp__mempool_visit_fn *fn, void *context) {
    visit v = {fn, context};
    (void)pthread_mutex_lock(&pool->lock);
    mp__mempool_each(pool, show, &v);
    (void)pthread_mutex_unlock(&pool->lock);
}

/* ---- figures ---- */

mp_status mp__mempool_stats(mp__mempool *pool, mp_pool_stats *out) {
    mp_mempool_usage usage = {0};
    (void)pthread_mutex_lock(&pool->lock);
    const mp_status status = pool->device->ops->mempool_usage(pool->device, pool->driver, &usage);
    mp_pool_stats stats = pool->stats;
    (void)pthread_mutex_unlock(&pool->lock);
    MP_TRY(status);
    stats.limit = pool->options.max_mem == SIZE_MAX ? UINT64_MAX : (uint64_t)pool->options.max_mem;
    stats.total = usage.reserved;
    stats.total_max = usage.reserved_max;
    *out = stats;
    return MP_OK;
}

mp_status mp__mempool_reset_peaks(mp__mempool *pool) {
    MP_TRY(pool->device->ops->mempool_reset_peaks(pool->device, pool->driver));
    (void)pthread_mutex_lock(&pool->lock);
    pool->stats.in_use_max = pool->stats.in_use;
    pool->stats.alloc_size_max = 0;
    (void)pthread_mutex_unlock(&pool->lock);
    return MP_OK;
}

mp_share mp__mempool_client_share(mp__mempool *pool, uint8_t client) {
    (void)pthread_mutex_lock(&pool->lock);
    mp_share share = pool->clients[client];
    (void)pthread_mutex_unlock(&pool->lock);
    share.stream = MP_NO_STREAM;
    return share;
}

size_t mp__mempool_stream_shares(mp__mempool *pool, mp_share *out, size_t capacity) {
    size_t count = 0;
    (void)pthread_mutex_lock(&pool->lock);
    for (const mempool_stream *stream = &pool->own; stream != NULL; stream = stream->next) {
        if (stream->share.allocs == 0 && stream->share.blocks == 0) {
            continue; /* only freed on, or declared */
        }
        if (count < capacity) {
            out[count] = stream->share;
        }
        count++;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return count;
}

/* ---- layout ---- */

static void count_block(void *context, mempool_block *block, bool lent) {
    (void)block;
    (void)lent;
    ++*(size_t *)context;
}

static void add_block(void *context, mempool_block *block, bool lent) {
    mp_layout *layout = context;
    layout->blocks[layout->block_count] =
        (mp_layout_block){.addr = block->addr,
                          .size = block->size,
                          .requested = lent ? block->requested : 0,
                          .stream = block->stream->native,
                          .state = lent ? MP_BLOCK_LENT : MP_BLOCK_WAITING,
                          .client = block->client,
                          .label = block->label};
    /* Each block comes and goes on its own, as memory outside an arena does. */
    layout->regions[layout->block_count] = (mp_layout_region){
        .addr = block->addr, .size = block->size, .reserved = true, .block_count = 1};
    layout->block_count++;
}

static int by_block(const void *left, const void *right) {
    const mp_addr a = ((const mp_layout_block *)left)->addr;
    const mp_addr b = ((const mp_layout_block *)right)->addr;
    return (a > b) - (a < b);
}

static int by_region(const void *left, const void *right) {
    const mp_addr a = ((const mp_layout_region *)left)->addr;
    const mp_addr b = ((const mp_layout_region *)right)->addr;
    return (a > b) - (a < b);
}

static mp_status fill_layout(mp__mempool *pool, mp_layout *layout) {
    size_t count = 0;
    mp__mempool_each(pool, count_block, &count);
    layout->blocks = calloc(count + 1, sizeof *layout->blocks);
    layout->regions = calloc(count + 1, sizeof *layout->regions);
    if (layout->blocks == NULL || layout->regions == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a picture of %zu blocks",
                       count);
    }
    mp__mempool_each(pool, add_block, layout);
    layout->region_count = count;
    qsort(layout->blocks, count, sizeof *layout->blocks, by_block);
    qsort(layout->regions, count, sizeof *layout->regions, by_region);
    for (size_t i = 0; i < count; i++) {
        layout->regions[i].first_block = i;
    }
    return MP_OK;
}

mp_status mp__mempool_layout(mp__mempool *pool, mp_layout *out) {
    mp_layout layout = {.device = pool->device, .memory = MP_MEMORY_DEVICE};
    MP_TRY(mp__mempool_stats(pool, &layout.stats));
    (void)pthread_mutex_lock(&pool->lock);
    const mp_status status = fill_layout(pool, &layout);
    (void)pthread_mutex_unlock(&pool->lock);
    if (status != MP_OK) {
        mp__layout_free(&layout);
        return status;
    }
    *out = layout;
    return MP_OK;
}
