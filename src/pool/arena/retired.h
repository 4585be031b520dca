/* retired.h - blocks outside the arena that were freed, on their way back to the source. Under the
 * arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_RETIRED_H
#define MP_POOL_RETIRED_H

#include "pool/arena/arena.h"

/* Gives what was freed back to the source, but for what belongs to a captured graph (`all`: that,
 * too); the device uses none of it. */
void mp__reserve_give_back(arena *a, bool all);
/* One block, in no list. */
void mp__reserved_release(arena *a, chunk *c);
/* Whether it was allocated in a capture that has not been released. */
bool mp__reserved_is_of_graph(const arena *a, const chunk *c);

#endif
