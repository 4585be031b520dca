/* mempool_private.h - what the files of the mempool mode share.
 *
 * One lock guards everything; no call that may wait is made under it. Whoever calls the device for
 * a stream holds it (users > 0) meanwhile, so that it is not taken apart by
 * mp__mempool_stream_gone. A block being freed is in no list: a second free does not find it, and a
 * failure puts it back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_MEMPOOL_PRIVATE_H
#define MP_POOL_MEMPOOL_PRIVATE_H

#include "pool/mempool/mempool.h"

#include <pthread.h>

typedef struct mempool_stream {
    struct mempool_stream *next;
    void *native;    /* MP_NO_STREAM for the pool's own */
    uint64_t thread; /* whose it is, where `native` means another stream to each thread; else 0 */
    mp_stream *wrap; /* owned; our own stream where `native` is MP_NO_STREAM */
    size_t users;    /* calls to the device that are under way */
    mp_share share;
} mempool_stream;

typedef struct mempool_use { /* a further stream that uses a block */
    struct mempool_use *next;
    mempool_stream *stream;
    bool ordered; /* the stream was made to wait for the allocation, or need not be */
} mempool_use;

typedef struct mempool_block {
    struct mempool_block *next; /* in its bucket, or among those to be freed later */
    mp_addr addr;
    size_t size, requested;
    mempool_stream *stream;  /* it was allocated on */
    mempool_stream *free_on; /* it is freed on */
    mempool_use *uses;       /* owned */
    uint16_t label;          /* what it is for */
    uint8_t client;
    bool reserved;
} mempool_block;

struct mp__mempool {
    mp_device *device;
    mp_mempool *driver; /* owned */
    mp__mempool_options options;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* a stream has lost a user */
    mempool_stream own;  /* head of the list of streams */
    mempool_block **buckets;
    size_t bucket_count; /* a power of two */
    size_t block_count;
    size_t counted;       /* against max_mem, and the limit of the process */
    mempool_block *later; /* freed in the order of a stream that is captured */
    mp_pool_stats stats;  /* but for what the driver says */
    mp_share clients[MP_CLIENTS_MAX];
};

/* ---- mempool_stream.c ---- */

/* The stream of a native handle, wrapped at its first use, and held. Not under the lock. */
mp_status mp__mempool_hold(mp__mempool *pool, void *native, mempool_stream **out);
/* The same without holding it. Under the lock. */
mp_status mp__mempool_stream_of(mp__mempool *pool, void *native, mempool_stream **out);
void mp__mempool_unhold(mp__mempool *pool, mempool_stream *stream);
/* Whether only another thread can reach the stream. */
bool mp__mempool_is_foreign(const mempool_stream *stream);
/* Whether work for the stream would become part of a capture, or break one. */
mp_status mp__mempool_is_captured(mp__mempool *pool, const mempool_stream *stream, bool *captured);

/* ---- mempool_table.c: allocated blocks by address; all under the lock ---- */

/* Fails: OUT_OF_MEMORY. */
mp_status mp__mempool_table_open(mp__mempool *pool);
mempool_block *mp__mempool_get(const mp__mempool *pool, mp_addr addr);
/* Adds a block, or takes it out, with what statistics say of it. */
void mp__mempool_link(mp__mempool *pool, mempool_block *block);
void mp__mempool_unlink(mp__mempool *pool, mempool_block *block);
/* Calls `fn` for each allocated block and each that is to be freed later. `fn` must not link. */
typedef void mempool_block_fn(void *context, mempool_block *block, bool lent);
void mp__mempool_each(const mp__mempool *pool, mempool_block_fn *fn, void *context);
void mp__mempool_block_free(mempool_block *block);

/* ---- mempool.c ---- */

/* Frees what had to wait for the end of captures, as far as those have ended. */
void mp__mempool_collect(mp__mempool *pool);

#endif
