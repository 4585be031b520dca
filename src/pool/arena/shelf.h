/* shelf.h - the shelf of a stream's heap: free chunks kept apart, unmerged, for the next request of
 * their size on that stream.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_SHELF_H
#define MP_POOL_SHELF_H

#include "pool/arena/arena.h"

/* Puts a chunk on the shelf. Under the heap's lock. Returns whether the shelf is now too full. */
bool mp__shelf_put(const arena *a, stream_heap *heap, chunk *c);
/* A chunk that fits, larger by an eighth or the heap's slack at most, or NULL. Under the heap's
 * lock. */
chunk *mp__shelf_take(stream_heap *heap, uint32_t units);
/* Moves chunks from the shelf to the bins: some, to make room, or all. Returns how many. Under the
 * arena's lock. */
size_t mp__shelf_clear(arena *a, stream_heap *heap, bool all);
/* The same for the chunk that fits best, or for all, of those that others may have: of epochs up
 * to `epoch_max`, and with no later ones of their size. Under the arena's lock. */
bool mp__shelf_offer(arena *a, stream_heap *heap, uint32_t units, uint64_t epoch_max);
size_t mp__shelf_offer_all(arena *a, stream_heap *heap, uint64_t epoch_max);

#endif
