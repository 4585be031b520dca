/* guard.h - borders around blocks, and poison inside.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_GUARD_H
#define MP_POOL_GUARD_H

#include "pool/arena/arena.h"

/* Fills the borders of a fresh block. */
void mp__guard_draw(arena *a, stream_heap *heap, const chunk *c);
/* Waits for the stream and looks whether the borders are whole; poisons the block. */
void mp__guard_check(arena *a, stream_heap *heap, const chunk *c);

#endif
