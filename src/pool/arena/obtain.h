/* obtain.h - a chunk for a request that its shelf could not serve. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_OBTAIN_H
#define MP_POOL_OBTAIN_H

#include "pool/arena/arena.h"

/* Gives: `*out`, a chunk of at least `units` for `heap`, in no list.
 * Fails: OUT_OF_MEMORY, with the sentence of the device or of the limit. */
mp_status mp__chunk_obtain(arena *a, stream_heap *heap, uint32_t units, chunk **out);

#endif
