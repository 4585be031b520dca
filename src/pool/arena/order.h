/* order.h - when memory that one stream has freed may serve another. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ORDER_H
#define MP_POOL_ORDER_H

#include "pool/arena/arena.h"

/* A chunk of another stream that fits and is safe for `l` now, or after making `l` wait (`wait`).
 */
chunk *mp__order_find(arena *a, lane *l, uint32_t units, bool wait);
/* Finds out which events have been reached. */
void mp__order_poll(arena *a);
/* Finds out which streams have nothing to do: what was freed on them is idle. On the others an
 * event is recorded, so that a later look knows more. */
void mp__order_settle_idle(arena *a);
/* The same for the shelves of streams other than `asking`, where nothing is recorded. Returns
 * whether one has nothing to do. */
bool mp__order_settle_kept(arena *a, const lane *asking, bool only_unused);
/* The last epoch of `other` whose memory `l` may use. */
uint64_t mp__order_seen(const lane *l, const lane *other);
/* All work on the lane's stream has ended. */
void mp__order_settle(lane *l);
/* Ends the lane's epoch and returns it. Takes the lane's lock. */
uint64_t mp__order_end_epoch(lane *l);
/* Moves waiting chunks whose further streams are done to their bins; with `wait` also those whose
 * own stream can be made to wait for them. */
void mp__order_collect(arena *a, bool wait);
/* `l` has waited for `epoch` of `other`. Fails: OUT_OF_MEMORY (host): then it is not known. */
mp_status mp__order_see(lane *l, const lane *other, uint64_t epoch);
mp_stream *mp__order_stream(arena *a, lane *l); /* NULL: it has none, or it cannot be created */
/* Makes the stream of `l` wait for `epoch` of `other`. False: one of them takes no event now. */
bool mp__order_wait(arena *a, lane *l, lane *other, uint64_t epoch);
/* Returns once `epoch` of `l` has been reached: waits for the device where `l` is the default
 * stream of another thread. Fails: BUSY where no event can tell. */
mp_status mp__order_reach(arena *a, lane *l, uint64_t epoch);
/* Records an event for all that was freed on `l` so far, as long as it takes one. */
void mp__order_cover(arena *a, lane *l);
/* Declares a further stream of an allocated block; under the lock of the block's lane as well. */
mp_status mp__use_add(chunk *c, const lane *other);
void mp__uses_free(use *uses);
/* Returns once what is queued on the chunk's further streams has ended. Not under the arena's lock;
 * the chunk is MOVING. Fails: as mp__lane_wait. */
mp_status mp__uses_wait(arena *a, const chunk *c);
/* `c`, MOVING and with uses, waits for them. */
void mp__order_wait_for_uses(arena *a, chunk *c);
void mp__order_close(arena *a);

#endif
