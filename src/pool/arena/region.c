/* region.c - the list of regions, by address.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/region.h"

#include "pool/arena/arena.h"

#include <stdlib.h>
#include <string.h>

/* The first region that begins after `addr`. */
static size_t index_after(const arena *a, mp_addr addr) {
    size_t low = 0;
    size_t high = a->region_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (a->regions[middle].addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const region *mp__region_of(const arena *a, mp_addr addr) {
    const size_t after = index_after(a, addr);
    if (after == 0) {
        return NULL;
    }
    const region *r = &a->regions[after - 1];
    return addr - r->addr < r->size ? r : NULL;
}

void mp__region_set_first(arena *a, mp_addr addr, chunk *first) {
    a->regions[index_after(a, addr) - 1].first = first;
}

mp_status mp__regions_prepare(arena *a) {
    if (a->region_count < a->region_capacity) {
        return MP_OK;
    }
    const size_t capacity = a->region_capacity == 0 ? 16 : 2 * a->region_capacity;
    region *regions = realloc(a->regions, capacity * sizeof *regions);
    if (regions == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the records of %zu regions",
                       capacity);
    }
    a->regions = regions;
    a->region_capacity = capacity;
    return MP_OK;
}

mp_status mp__region_add(arena *a, region fresh) {
    MP_TRY(mp__regions_prepare(a));
    const size_t at = index_after(a, fresh.addr);
    memmove(&a->regions[at + 1], &a->regions[at], (a->region_count - at) * sizeof a->regions[0]);
    a->regions[at] = fresh;
    a->region_count++;
    return MP_OK;
}

void mp__region_remove(arena *a, size_t at) {
    a->region_count--;
    memmove(&a->regions[at], &a->regions[at + 1], (a->region_count - at) * sizeof a->regions[0]);
}
