/* mempool.h - a pool's memory in mempool mode: the driver's own stream-ordered pool allocates it.
 *
 * What the driver does not do is done here: addresses are known (a second free and a foreign
 * address are refused, statistics name clients and streams), a block is freed in the order of the
 * stream it was allocated on, further streams that use it are waited for, and streams may end
 * before their blocks.
 *
 * A `stream` is a native handle as in millpond.h; MP_NO_STREAM stands for a stream of the pool's
 * own, and a block allocated on it is usable at once. A stream that is captured can neither
 * allocate (UNSUPPORTED) nor free: what is freed in its order then is freed after the capture, so
 * the capturing program keeps blocks that the graph uses until the graph is gone.
 *
 * max_mem and the limit of the process count allocated blocks, rounding included, until the driver
 * has been told of its free. What the driver keeps beyond that does not count: no call of the
 * driver can bound it before the request that makes it grow. All functions: threads any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_MEMPOOL_H
#define MP_POOL_MEMPOOL_H

#include "pool/layout.h"

typedef struct mp__mempool mp__mempool;

typedef struct mp__mempool_options {
    size_t release_threshold; /* bytes the driver keeps; 0 leaves its default */
    size_t bytes_to_keep_on_shrink;
    size_t max_mem; /* the most that is allocated at one time; SIZE_MAX: no limit */
} mp__mempool_options;

/* Gives: `*out`, until destroy. Fails: UNSUPPORTED where the driver has no such pools. */
mp_status mp__mempool_create(mp_device *device, const mp__mempool_options *options,
                             mp__mempool **out);

/* Takes: `pool`. Waits for the device, frees what is still allocated (and logs that), trims to
 * nothing.
 */
void mp__mempool_destroy(mp__mempool *pool);

/* ---- blocks ---- */

/* As mp_pool_alloc. `client` is an index below MP_CLIENTS_MAX. When memory runs out, waits for the
 * pool's streams, but for captured ones, and asks again. */
mp_status mp__mempool_alloc(mp__mempool *pool, size_t size, void *stream, uint8_t client,
                            mp_addr *out);

/* As mp_pool_reserve: the same memory, without a stream, counted apart. */
mp_status mp__mempool_reserve(mp__mempool *pool, size_t size, uint8_t client, mp_addr *out);

/* Counts a request that found no memory for good, which only the caller knows. */
void mp__mempool_count_failure(mp__mempool *pool);

/* In the order of the stream the block was allocated on. `addr` 0 is ignored.
 * Fails: INVALID_ARGUMENT for an address that is not an allocated block; another code when the
 * device fails, and then the block is allocated as before. */
mp_status mp__mempool_free(mp__mempool *pool, mp_addr addr);

/* In the order of `stream`, which the caller has made wait for all work that uses the block. */
mp_status mp__mempool_free_on(mp__mempool *pool, mp_addr addr, void *stream);

/* Work that is queued on `stream` from now on uses the block, too: it comes after the block's
 * allocation, and the block is freed after it. Fails: as mp_pool_record_use. */
mp_status mp__mempool_record_use(mp__mempool *pool, mp_addr addr, void *stream);
/* The same for a stream that was ordered before it used the block: it is not made to wait. */
mp_status mp__mempool_record_end(mp__mempool *pool, mp_addr addr, void *stream);

typedef struct mp__mempool_block {
    mp_addr addr; /* where the block begins */
    size_t size, requested;
    void *stream;
    uint16_t label; /* what it is for, see trace_label.h */
    uint8_t client;
} mp__mempool_block;

/* The allocated block around `addr`. Looks at all blocks. Fails: NOT_FOUND. */
mp_status mp__mempool_find(mp__mempool *pool, mp_addr addr, mp__mempool_block *out);

/* Shows `fn` each allocated block, and each to be freed later. `fn` must not call the pool. */
typedef void mp__mempool_visit_fn(void *context, const mp__mempool_block *block, bool lent);
void mp__mempool_look(mp__mempool *pool, mp__mempool_visit_fn *fn, void *context);

/* ---- streams and memory at large ---- */

/* `stream` is about to be destroyed: waits for its work. Its allocated blocks count as allocated
 * without a stream. Fails: as stream_synchronize, nothing changed. */
mp_status mp__mempool_stream_gone(mp__mempool *pool, void *stream);
/* The same; `stream` is waited for only if another client has blocks there. */
mp_status mp__mempool_stream_over(mp__mempool *pool, void *stream, uint8_t client);

/* Waits for the work of every stream that is not captured and can be reached. */
mp_status mp__mempool_wait(mp__mempool *pool);

/* Waits for the pool's streams, but for captured ones, and trims. `*released` (may be NULL): by how
 * much the pool has shrunk. */
mp_status mp__mempool_shrink(mp__mempool *pool, size_t *released);

/* ---- looking at it ---- */

/* `total` and `total_max` are the driver's figures (what the pool reserves); `limit` is max_mem,
 * which `total` may exceed. */
mp_status mp__mempool_stats(mp__mempool *pool, mp_pool_stats *out);
mp_status mp__mempool_reset_peaks(mp__mempool *pool);

/* A client's share, but for its name, which this pool does not know. */
mp_share mp__mempool_client_share(mp__mempool *pool, uint8_t client);

/* One share a stream that has had blocks; fills at most `capacity`. Returns how many there are. */
size_t mp__mempool_stream_shares(mp__mempool *pool, mp_share *out, size_t capacity);

/* Fills in regions, blocks, device, memory and statistics: each block is a region of its own. Names
 * of clients are the caller's. Gives: what mp__layout_free frees. Fails: OUT_OF_MEMORY (host). */
mp_status mp__mempool_layout(mp__mempool *pool, mp_layout *out);

#endif
