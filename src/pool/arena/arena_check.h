/* arena_check.h - whether an arena's record of itself is consistent, for tests and for pools opened
 * with arena.check=1.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ARENA_CHECK_H
#define MP_POOL_ARENA_CHECK_H

#include "base/status.h"

typedef struct arena arena;

/* Compares all that the arena counts and lists with its chunks. Threads: any, without locks.
 * Fails: INTERNAL, with the first breach: what does not agree, and the numbers. */
mp_status mp__arena_check(arena *a);

/* Checks under the arena's lock, which is then given up, and logs a breach at ERROR; the first one
 * only, since what follows from it says little. */
void mp__arena_unlock_checked(arena *a);

#endif
