/* reserve.h - blocks outside the arena, straight from the source.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_RESERVE_H
#define MP_POOL_RESERVE_H

#include "pool/arena/arena.h"

mp_status mp__arena_reserve(arena *a, size_t size, uint8_t client, mp_addr *out);
/* As mp__arena_alloc, where every block is an allocation of the external manager. */
mp_status mp__arena_pass_on(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
/* Takes: `c`, MOVING, which was RESERVED, allocated on `from` and freed in the order of `to`.
 * Blocks: until the device, or the streams of a block that was passed on, have ended what uses it.
 */
void mp__reserve_free(arena *a, chunk *c, stream_heap *from, stream_heap *to);

#endif
