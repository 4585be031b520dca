/* usage.h - what is in use, and the most that ever was.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_USAGE_H
#define MP_POOL_USAGE_H

#include "pool/arena/arena.h"

void mp__usage_clients(arena *a, mp_share *out, size_t capacity, size_t *count_out);
mp_status mp__usage_streams(arena *a, mp_share *out, size_t capacity, size_t *count_out);
/* Counts a block of `c` on `heap` and gives the chunk its state. Threads: any, without locks. */
void mp__usage_add(arena *a, stream_heap *heap, chunk *c, chunk_state state);
/* The same under the heap's lock; false, and nothing done, where mp__usage_add is needed. */
bool mp__usage_add_fast(stream_heap *heap, chunk *c, chunk_state state);
/* The one or the other. Threads: any, without locks. */
void mp__usage_count(arena *a, stream_heap *heap, chunk *c, chunk_state state);
/* Under the heap's lock. */
void mp__usage_remove(stream_heap *heap, const chunk *c);
void mp__usage_stats(arena *a, mp_pool_stats *out);
/* The same, under the locks of the arena and of all heaps. */
void mp__usage_stats_locked(const arena *a, mp_pool_stats *out);
void mp__usage_reset_peaks(arena *a);
/* How much the arena may have from the device before it takes pains to have less, for a request of
 * `bytes`. Under the arena's lock. */
size_t mp__arena_plenty(const arena *a, size_t bytes);

#endif
