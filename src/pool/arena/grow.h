/* grow.h - regions: growing by them, and giving them back. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_GROW_H
#define MP_POOL_GROW_H

#include "pool/arena/arena.h"

/* Reserves at least `units` more from the device, free on `heap`. Fails: OUT_OF_MEMORY. */
mp_status mp__region_grow(arena *a, stream_heap *heap, uint32_t units);
/* Gives back every region that is one idle chunk, and idle pages. Gives: `*bytes`, how many, also
 * where some stay. Fails: DEVICE, where some do. */
mp_status mp__region_trim(arena *a, size_t *bytes);
/* The same for whoever is short of memory: whether there was anything. */
bool mp__region_trim_any(arena *a);
/* Whether there would be room for `units` after that. */
bool mp__region_trim_helps(const arena *a, uint32_t units);
void mp__regions_close(arena *a);

#endif
