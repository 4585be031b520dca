/* mempool_table.c - the allocated blocks of a pool in mempool mode, by address.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/mempool/mempool_private.h"

#include <stdlib.h>

enum { BUCKETS_MIN = 256 };

static size_t bucket_of(mp_addr addr, size_t count) {
    const uint64_t mixed = (uint64_t)(addr / MP_ALIGNMENT) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 32) & (count - 1);
}

/* More buckets where there are many blocks. Without memory, lists grow longer. */
static void make_room(mp__mempool *pool) {
    if (pool->block_count < pool->bucket_count) {
        return;
    }
    const size_t count = pool->bucket_count == 0 ? BUCKETS_MIN : pool->bucket_count * 2;
    mempool_block **buckets = calloc(count, sizeof(mempool_block *));
    if (buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < pool->bucket_count; i++) {
        mempool_block *next = NULL;
        for (mempool_block *block = pool->buckets[i]; block != NULL; block = next) {
            next = block->next;
            mempool_block **bucket = &buckets[bucket_of(block->addr, count)];
            block->next = *bucket;
            *bucket = block;
        }
    }
    free(pool->buckets);
    pool->buckets = buckets;
    pool->bucket_count = count;
}

mp_status mp__mempool_table_open(mp__mempool *pool) {
    make_room(pool);
    return pool->buckets != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a table of blocks");
}

mempool_block *mp__mempool_get(const mp__mempool *pool, mp_addr addr) {
    mempool_block *block = pool->buckets[bucket_of(addr, pool->bucket_count)];
    while (block != NULL && block->addr != addr) {
        block = block->next;
    }
    return block;
}

static void count_in(mp_share *share, const mempool_block *block) {
    share->in_use += block->size;
    share->requested += block->requested;
    share->blocks++;
}

static void count_out(mp_share *share, const mempool_block *block) {
    share->in_use -= block->size;
    share->requested -= block->requested;
    share->blocks--;
}

void mp__mempool_link(mp__mempool *pool, mempool_block *block) {
    make_room(pool);
    mempool_block **bucket = &pool->buckets[bucket_of(block->addr, pool->bucket_count)];
    block->next = *bucket;
    *bucket = block;
    pool->block_count++;
    mp_pool_stats *stats = &pool->stats;
    stats->in_use += block->size;
    stats->requested += block->requested;
    stats->in_use_max = MP_MAX(stats->in_use, stats->in_use_max);
    count_in(&pool->clients[block->client], block);
    count_in(&block->stream->share, block);
}

void mp__mempool_unlink(mp__mempool *pool, mempool_block *block) {
    mempool_block **link = &pool->buckets[bucket_of(block->addr, pool->bucket_count)];
    while (*link != block) {
        link = &(*link)->next;
    }
    *link = block->next;
    pool->block_count--;
    pool->stats.in_use -= block->size;
    pool->stats.requested -= block->requested;
    count_out(&pool->clients[block->client], block);
    count_out(&block->stream->share, block);
}

void mp__mempool_each(const mp__mempool *pool, mempool_block_fn *fn, void *context) {
    for (size_t i = 0; i < pool->bucket_count; i++) {
        for (mempool_block *block = pool->buckets[i]; block != NULL; block = block->next) {
            fn(context, block, true);
        }
    }
    for (mempool_block *block = pool->later; block != NULL; block = block->next) {
        fn(context, block, false);
    }
}

void mp__mempool_block_free(mempool_block *block) {
    while (block->uses != NULL) {
        mempool_use *use = block->uses;
        block->uses = use->next;
        free(use);
    }
    free(block);
}
