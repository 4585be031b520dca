/* order.h - when memory that one stream has freed may serve another. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ORDER_H
#define MP_POOL_ORDER_H

#include "pool/arena/arena.h"

/* A chunk of another stream that fits and is safe for `heap` now; with `wait` also one that `heap`
 * is made to wait for. */
chunk *mp__order_find(arena *a, stream_heap *heap, uint32_t units, bool wait);
/* Finds out which events have been reached. */
void mp__order_poll(arena *a);
/* Finds out which streams have nothing to do: what was freed on them is idle. On the others an
 * event is recorded, so that a later look knows more. */
void mp__order_settle_idle(arena *a);
/* The same for the shelves of streams other than `asking`, where nothing is recorded. Returns
 * whether one has nothing to do. */
bool mp__order_settle_kept(arena *a, const stream_heap *asking, bool only_unused);
/* The last epoch of `other` whose memory `heap` may use. */
uint64_t mp__order_seen(const stream_heap *heap, const stream_heap *other);
/* All work on the heap's stream has ended. */
void mp__order_settle(stream_heap *heap);
/* Ends the heap's epoch and returns it. Takes the heap's lock. */
uint64_t mp__order_end_epoch(stream_heap *heap);
/* Moves waiting chunks whose further streams are done to their bins; with `wait` also those whose
 * own stream can be made to wait for them. */
void mp__order_collect(arena *a, bool wait);
/* `heap` has waited for `epoch` of `other`. Fails: OUT_OF_MEMORY (host): then it is not known. */
mp_status mp__order_see(stream_heap *heap, const stream_heap *other, uint64_t epoch);
/* The stream of `heap`. NULL: it has none, or it cannot be created. */
mp_stream *mp__order_stream(arena *a, stream_heap *heap);
/* Makes the stream of `heap` wait for `epoch` of `other`. False: one of them takes no event now. */
bool mp__order_wait(arena *a, stream_heap *heap, stream_heap *other, uint64_t epoch);
/* Returns once `epoch` of `heap` has been reached: waits for the device where `heap` is the default
 * stream of another thread. Fails: BUSY where no event can tell. */
mp_status mp__order_reach(arena *a, stream_heap *heap, uint64_t epoch);
/* Records an event for all that was freed on `heap` so far, as long as it takes one. */
void mp__order_cover(arena *a, stream_heap *heap);
/* Declares a further stream of an allocated block; under the lock of the block's heap as well. */
mp_status mp__use_add(chunk *c, const stream_heap *other);
void mp__uses_free(use *uses);
/* Returns once what is queued on the chunk's further streams has ended. Not under the arena's lock;
 * the chunk is MOVING. Fails: as mp__stream_heap_wait. */
mp_status mp__uses_wait(arena *a, const chunk *c);
/* `c`, MOVING and with uses, waits for them. */
void mp__order_wait_for_uses(arena *a, chunk *c);
void mp__order_close(arena *a);

#endif
