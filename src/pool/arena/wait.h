/* wait.h - the host waits for the streams that an arena knows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_WAIT_H
#define MP_POOL_WAIT_H

#include "pool/arena/arena.h"

/* Waits for what is queued on the arena's streams, but for captured ones and the default streams of
 * other threads. Not under its lock. */
mp_status mp__arena_wait(arena *a);
/* The same for one heap. Fails: BUSY, without a sentence, where it is one of those. */
mp_status mp__stream_heap_wait(arena *a, stream_heap *heap);

#endif
