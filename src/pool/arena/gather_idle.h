/* gather_idle.h - free memory brought together. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_GATHER_IDLE_H
#define MP_POOL_GATHER_IDLE_H

#include "pool/arena/arena.h"

/* Puts what is idle into the bins of heap 0, merged. */
void mp__arena_gather_idle(arena *a);
/* The same, with what is on shelves. */
void mp__arena_gather(arena *a);
/* Waits for the device, so that every free chunk is idle. Not while a stream is captured. */
mp_status mp__arena_quiesce(arena *a);

#endif
