/* expand.h - expandable regions: pages mapped on demand. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_EXPAND_H
#define MP_POOL_EXPAND_H

#include "pool/arena/arena.h"

bool mp__expand_wanted(const arena *a);
mp_status mp__expand_grow(arena *a, stream_heap *heap, uint32_t units);
/* Unmaps whole pages of idle chunks. Adds their bytes to `*bytes`, also where some stay. Fails:
 * DEVICE, where some do. */
mp_status mp__expand_trim(arena *a, size_t *bytes);
/* How many bytes that would be. */
size_t mp__expand_idle(const arena *a);
/* Unmaps what is mapped and gives the addresses back. */
void mp__expand_close(arena *a, const region *r);

#endif
