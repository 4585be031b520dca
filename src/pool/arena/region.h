/* region.h - the list of an arena's regions, by address. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_REGION_H
#define MP_POOL_REGION_H

#include "pool/arena/chunk.h"

typedef struct arena arena;

typedef struct region {
    mp_addr addr;
    size_t size;
    chunk *first;
    bool expandable;
} region;

const region *mp__region_of(const arena *a, mp_addr addr);
/* Makes sure that the next mp__region_add succeeds. Fails: OUT_OF_MEMORY (host). */
mp_status mp__regions_prepare(arena *a);
mp_status mp__region_add(arena *a, region fresh);
void mp__region_remove(arena *a, size_t at);
/* `first` begins the region at `addr` now. */
void mp__region_set_first(arena *a, mp_addr addr, chunk *first);

#endif
