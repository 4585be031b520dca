/* pool_mode.h - the ways in which a pool gets its memory, as one table of functions each.
 *
 * The functions of millpond.h check their arguments, take the arena of their handle and call the
 * function of the same name here. Each does what millpond.h says of its namesake, with the same
 * errors; what is said here is what it may rely on, and what differs. Threads: any.
 *
 *     arena    regions of the device, cut into chunks
 *     direct   the same, but every block is an allocation of the external memory manager
 *     mempool  the driver's own pool; it keeps the order of streams itself
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_POOL_MODE_H
#define MP_POOL_POOL_MODE_H

#include "pool/layout.h"

typedef struct arena arena;

/* The stream of a free: the one that the block was allocated on. */
#define MP_SAME_STREAM ((void *)~(uintptr_t)1)

typedef struct pool_mode {
    /* ---- blocks; `client` is the index of the handle's, `out` is not NULL ---- */

    mp_status (*alloc)(arena *a, size_t size, void *stream, uint8_t client, mp_addr *out);
    /* As mp__pool_try_alloc: BUSY, without a sentence and with nothing done, where it would take
     * the arena's lock. */
    mp_status (*try_alloc)(arena *a, size_t size, void *stream, uint8_t client, mp_addr *out);
    /* `addr` is not 0; `stream` may be MP_SAME_STREAM. */
    mp_status (*free)(arena *a, mp_addr addr, void *stream);
    /* As mp__pool_try_free; `addr` may be 0. */
    mp_status (*try_free)(arena *a, mp_addr addr, void *stream);
    mp_status (*reserve)(arena *a, size_t size, uint8_t client, mp_addr *out);
    mp_status (*record_use)(arena *a, mp_addr addr, void *stream);
    /* As mp__pool_record_end: `stream` is not made to wait. */
    mp_status (*record_end)(arena *a, mp_addr addr, void *stream);
    mp_status (*find)(arena *a, mp_addr addr, mp_block_info *out);

    /* ---- order ---- */

    mp_status (*stream_settled)(arena *a, void *stream);
    mp_status (*stream_gone)(arena *a, void *stream);
    /* As mp__pool_stream_over. */
    mp_status (*stream_over)(arena *a, void *stream, uint8_t client);
    mp_status (*stream_mark)(arena *a, void *producer, uint64_t *mark);
    mp_status (*stream_ordered)(arena *a, void *consumer, void *producer, uint64_t mark);
    /* Waits for what is queued on the streams that the pool knows, but for captured ones and the
     * default streams of other threads. Fails: DEVICE, OUT_OF_MEMORY (host). */
    mp_status (*wait)(arena *a);

    /* ---- captures ---- */

    mp_status (*capture_begin)(arena *a, void *stream, mp_capture **capture);
    mp_status (*capture_end)(arena *a, void *stream);
    mp_status (*capture_release)(arena *a, mp_capture *capture);

    /* ---- memory at large ---- */

    /* `released` may be NULL. */
    mp_status (*shrink)(arena *a, size_t *released);
    /* Whether regions are allocations of their own, which the device, or the external manager, can
     * give other processes a handle on. */
    bool regions_are_allocations;

    /* ---- looking at it ---- */

    mp_status (*get_stats)(arena *a, mp_pool_stats *out);
    void (*reset_peaks)(arena *a);
    /* Fill in at most `capacity`, and say in `*count` how many there are. */
    void (*get_clients)(arena *a, mp_share *out, size_t capacity, size_t *count);
    mp_status (*get_streams)(arena *a, mp_share *out, size_t capacity, size_t *count);
    mp_status (*dump)(arena *a, mp_write_fn *write, void *context);
    /* Gives: `*out`, to be freed with mp__layout_free. */
    mp_status (*layout)(arena *a, mp_layout *out);
    /* Whether the pool's record of itself is consistent. Fails: INTERNAL, with the first breach. */
    mp_status (*check)(arena *a);
    /* A line of the log with the options that a new pool has settled on. */
    void (*report_options)(const arena *a);

    /* ---- life ---- */

    /* Takes: `a`, on which nobody works any more. Waits for the device and frees everything. */
    void (*destroy)(arena *a);
} pool_mode;

/* A try_alloc of modes that have no shelf: BUSY. */
mp_status mp__mode_refuse_try_alloc(arena *a, size_t size, void *stream, uint8_t client,
                                    mp_addr *out);

/* Gives a fresh arena its mode: the driver's own pool where the options ask for it and there is one
 * (else a warning is logged), else one of the others. Fails: OUT_OF_MEMORY, DEVICE. */
mp_status mp__mode_choose(arena *a);

#endif
