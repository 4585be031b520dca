/* region.c - the list of regions, by address. SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/arena.h"

#include <stdlib.h>
#include <string.h>

<<<<<<< HEAD
=======
/* ---- the source ---- */

mp_status mp__source_alloc(const source *s, size_t size, mp_addr *out) {
    mp_device *device = s->device;
    if (!s->is_external) {
        return s->memory == MP_MEMORY_PINNED ? device->ops->alloc_pinned(device, size, out)
                                             : device->ops->alloc(device, size, out);
    }
    void *memory = s->external.alloc(s->external.context, size);
    if (memory == NULL && s->external.empty_cache != NULL) {
        s->external.empty_cache(s->external.context);
        memory = s->external.alloc(s->external.context, size);
    }
    if (memory == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "the external memory manager has no %zu bytes", size);
    }
    if ((uintptr_t)memory % UNIT != 0) {
        s->external.free(s->external.context, memory, size);
        return MP_FAIL(
            UNSUPPORTED,
            "the external memory manager gave address %p, which is not a multiple of %d; "
            "have it align what it gives to %d bytes",
            memory, UNIT, UNIT);
    }
    *out = (mp_addr)memory;
    return MP_OK;
}

void mp__source_free(const source *s, mp_addr addr, size_t size) {
    mp_device *device = s->device;
    if (s->is_external) {
        s->external.free(s->external.context, (void *)addr, size);
    } else if (s->memory == MP_MEMORY_PINNED) {
        device->ops->free_pinned(device, addr, size);
    } else {
        device->ops->free(device, addr, size);
    }
}

bool mp__source_info(const source *s, size_t *left, size_t *all) {
    const mp_external *external = &s->external;
    if (s->is_external) {
        return external->info != NULL && external->info(external->context, left, all);
    }
    return s->memory == MP_MEMORY_DEVICE &&
           s->device->ops->memory_info(s->device, left, all) == MP_OK;
}

/* ---- limits ---- */

static size_t available(const arena *a) {
    const size_t total = arena_total(a);
    return total < a->options.max_mem ? a->options.max_mem - total : 0;
}

mp_status mp__region_take(arena *a, size_t size) {
    if (size > available(a)) {
        return MP_FAIL(OUT_OF_MEMORY, "%zu bytes more would exceed arena.max_mem (%zu bytes)", size,
                       a->options.max_mem);
    }
    if (a->source.memory == MP_MEMORY_DEVICE && !mp__limit_take(size)) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "%zu bytes more would exceed the limit of the process (%zu "
                       "bytes, MILLPOND_LIMIT)",
                       size, mp_limit_get());
    }
    const size_t total = atomic_fetch_add_explicit(&a->total, size, memory_order_relaxed) + size;
    a->counts.total_max = total > a->counts.total_max ? total : a->counts.total_max;
    return MP_OK;
}

void mp__region_give(arena *a, size_t size) {
    (void)atomic_fetch_sub_explicit(&a->total, size, memory_order_relaxed);
    if (a->source.memory == MP_MEMORY_DEVICE) {
        mp__limit_give(size);
    }
}

/* ---- the list, by address ---- */

>>>>>>> wip-hostile
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
