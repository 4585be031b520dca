/* block_cache.h - a plain cache of device or pinned memory: blocks of a few sizes, kept when freed.
 *
 * A block remembers the stream it was lent to. Freed, it may be lent again on the same stream at
 * once, since that stream's order keeps the two users apart; to another stream only after
 * mp_block_cache_settle says that its stream has caught up.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_BLOCK_CACHE_H
#define MP_POOL_BLOCK_CACHE_H

#include "device/device.h"

typedef struct mp_block_cache mp_block_cache;

typedef struct mp_block_cache_stats {
    uint64_t in_use;        /* bytes lent now */
    uint64_t in_use_max;    /* the most ever lent */
    uint64_t total;         /* bytes had from the device, lent and kept */
    uint64_t request_max;   /* the largest request */
    uint64_t allocs;        /* requests served */
    uint64_t device_allocs; /* times the device was asked */
    uint64_t shrinks;
} mp_block_cache_stats;

/* Memory of `device`: page-locked host memory with `pinned`. Gives: `*out`, until destroy. */
mp_status mp_block_cache_create(mp_device *device, bool pinned, mp_block_cache **out);

/* Gives every block back to the device. Blocks still lent become invalid. */
void mp_block_cache_destroy(mp_block_cache *cache);

/* Lends `size` bytes (0 counts as 1), aligned to MP_ALIGNMENT, to work on `stream`; a NULL stream
 * stands for the host. Threads: any. Blocks: when the device must be asked.
 * Fails: OUT_OF_MEMORY after every kept block was given back to the device. */
mp_status mp_block_cache_alloc(mp_block_cache *cache, size_t size, const mp_stream *stream,
                               mp_addr *out);

/* Takes a lent block back; `addr` 0 is ignored. Threads: any. An address that was never lent, or
 * was freed before, is refused with a log line. */
void mp_block_cache_free(mp_block_cache *cache, mp_addr addr);

/* All work queued on `stream` has ended: its blocks, once free, may serve any stream. Also before
 * `stream` is destroyed. */
void mp_block_cache_settle(mp_block_cache *cache, const mp_stream *stream);

/* Gives the kept blocks back to the device. Blocks: waits for the device. */
mp_status mp_block_cache_shrink(mp_block_cache *cache);

mp_block_cache_stats mp_block_cache_get_stats(mp_block_cache *cache);

#endif
