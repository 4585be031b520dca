/* coalesce.h - chunks cut and joined. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_COALESCE_H
#define MP_POOL_COALESCE_H

#include "pool/arena/arena.h"

enum { CHUNK_RECORDS = 8 }; /* that one growth and one cut may take */

/* Puts a chunk that is in no list and not in `addresses` into the bins of its heap, merged with its
 * neighbours there. Its heap and epoch are set. */
void mp__chunk_bin(arena *a, chunk *c);
/* The same for one that was allocated or on a shelf. */
void mp__chunk_release(arena *a, chunk *c);
/* Cuts `c`, which is in no list, after `units`; gives the record of the rest, which gets the same
 * heap, epoch and state. Records must be prepared. */
chunk *mp__chunk_split(arena *a, chunk *c, uint32_t units);
/* The first `units` of `c`, which is in no list, as a chunk with a record of `heap`; `c` keeps the
 * rest, or is none any more. One record of `heap` must be prepared. */
chunk *mp__chunk_cut(arena *a, stream_heap *heap, chunk *c, uint32_t units);
/* Joins `right`, which is in no list, to its neighbour `left`. */
void mp__chunk_join(chunk *left, chunk *right);
/* Whether `c` may be allocated on any stream at once. */
bool mp__chunk_is_idle(const arena *a, const chunk *c);

#endif
